/* What the unit tests share. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

extern char *guard; /* the first octet that must not be read */

/* Counts and prints a failure unless `ok`. */
void check(bool ok, const char *what, const char *detail);

/* The same octets, right before the guard page. */
const char *guarded(const char *p, size_t n);

void test_request_heads(void);
void test_state(void);
void test_sandbox(void);
void test_beneath(void);
