/* A connection: bytes in, requests out of them, responses, and what remains of both. */
#pragma once

#include "body.h"
#include "range.h"
#include "server.h"
#include <netinet/in.h>

enum conn_state {
    CONN_IDLE,   /* between requests: nothing of the next one has come */
    CONN_HEAD,   /* part of a request head has come */
    CONN_BODY,   /* the head has come, the body is being passed over */
    CONN_SEND,   /* a response is partly sent; no input is read */
    CONN_LINGER, /* our side is shut; input is thrown away until the peer's end */
};

/* What is still to be sent of a multipart response. */
struct parts {
    struct file *file; /* held */
    struct ranges ranges;
    unsigned next;
    uint64_t boundary;
};

struct conn {
    ev_io io; /* first: it is what the loop knows */
    struct server *server;
    TAILQ_ENTRY(conn) peers; /* with the same deadline */
    double since;
    enum deadline deadline;
    enum conn_state state;
    int events; /* watched now */
    bool status_page;
    bool closing; /* no request is taken any more */
    bool linger;  /* the peer may still be sending: shut, then wait */
    bool eof;     /* the peer has shut its side */
    bool failed;  /* nothing can be sent any more */
    bool abort;   /* and the peer must notice */
    unsigned long requests;
    size_t progress; /* octets sent since the send deadline was set */
    int queued;      /* octets that the peer had not acknowledged then */
    char *in;        /* input that waits for more, or for the output to drain */
    size_t in_length;
    size_t scanned;
    size_t head_length; /* != 0: the head of the request whose body is being skipped */
    struct body body;
    char *out; /* output that the socket did not take */
    size_t out_at;
    size_t out_length;
    struct file *file; /* and after it, this slice of a file */
    off_t at;
    off_t end;
    struct parts *parts;      /* and after it, these */
    struct sockaddr_in6 peer; /* or a sockaddr_in, for the log */
};

/* Takes over an accepted socket and serves what has come already; where there are too many
 * connections and none is idle, the answer is 503. */
void conn_open(struct server *s, int fd, const struct sockaddr_in6 *peer, bool status_page);

void conn_close(struct conn *c);

/* realloc() from `old` to `n` octets for what a connection keeps; 0 frees. When connections keep
 * too much of it those go that wait for their readers longest. NULL, with `p` as it was, when there
 * is no memory even then. */
char *conn_realloc(struct conn *c, char *p, size_t old, size_t n);

/* Closes connections whose time is over. */
void conn_sweep(struct server *s);

/* Closes the connection that has been idle longest; false when none is. */
bool conn_reclaim(struct server *s);

/* Answers one request; `more` when input follows it. In serve.c. */
void serve(struct conn *c, const struct request *r, bool more);

/* Whether the body of this request is for the script. */
bool serve_needs_body(const struct conn *c, const struct request *r);

/* Answers with an error and closes; `r` may be NULL. In response.c. */
void respond_refusal(struct conn *c, const struct request *r, int status);
