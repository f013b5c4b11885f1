/* A connection: bytes in, requests out of them, responses, and what remains of both. */
#pragma once

#include "body.h"
#include "range.h"
#include "server.h"
#include <netinet/in.h>

/* What each waits for, and how long, is in the table of conn.c. */
enum conn_state {
    CONN_NEW,    /* nothing has come yet */
    CONN_IDLE,   /* between requests: nothing of the next one has come */
    CONN_HEAD,   /* part of a request head has come */
    CONN_BODY,   /* the head has come, the body is being passed over */
    CONN_WORK,   /* a request is being answered */
    CONN_TURN,   /* there is input, for the next turn of the loop */
    CONN_SEND,   /* a response is partly sent; no input is read */
    CONN_LINGER, /* our side is shut; input is thrown away until the peer's end */
    CONN_STATES
};

/* The rest of a multipart response. */
struct parts {
    struct file *file; /* held */
    struct ranges ranges;
    unsigned next;
    uint64_t boundary;
};

struct conn {
    struct watch io; /* first: it is what the loop knows */
    struct server *server;
    TAILQ_ENTRY(conn) peers;   /* with the same deadline */
    TAILQ_ENTRY(conn) keepers; /* of input or output */
    size_t kept;               /* octets */
    double since;
    enum deadline deadline;
    enum conn_state state;
    bool status_page;
    bool waits_turn; /* the next turn answers its input */
    bool closing;    /* takes no further request */
    bool linger;     /* the peer may still be sending: shut, then wait */
    bool eof;        /* the peer has shut its side */
    bool failed;     /* sending is impossible */
    bool abort;      /* and the peer must notice */
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
    struct parts *parts;          /* and after it, these */
    uint64_t sent;                /* octets, in all */
    uint64_t body_at;             /* `sent` when the body of the response that is logged begins */
    double asked;                 /* when its request came */
    struct accesslog_line line;   /* of it */
    unsigned char address_length; /* of the peer, for the log */
    char address[ACCESSLOG_ADDRESS];
};

/* Call it once, before the first connection. */
void conn_prepare(struct server *s);

/* Takes over an accepted socket and serves what has come already; where there are too many
 * connections and none is idle, the answer is 503. */
void conn_open(struct server *s, int fd, const struct sockaddr_in6 *peer, bool status_page);

/* Goes on with those that wait for their next turn, as far as this one's time lets it. */
void conn_continue(struct server *s);

/* Closes connections that have reached their deadline, a few in each turn of the loop. Whether more
 * have reached it. */
bool conn_sweep(struct server *s);

/* Closes all connections; how many of them had not got all of a response. */
unsigned long conn_end(struct server *s);

/* Closes the connection that has been idle longest; false when none is. */
bool conn_reclaim(struct server *s);
