#include "loop.h"
#include <unistd.h>

bool loop_open(struct loop *l)
{
    l->count = l->at = 0;
    l->fd = epoll_create1(EPOLL_CLOEXEC);
    return l->fd >= 0;
}

void loop_close(struct loop *l)
{
    close(l->fd);
}

void loop_forget(struct loop *l, struct watch *w)
{
    for (int i = l->at; w->events && i < l->count; i++)
        if (l->events[i].data.ptr == w)
            l->events[i].data.ptr = NULL;
    w->events = 0;
}

bool loop_watch(struct loop *l, struct watch *w, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = w};
    int how = w->events == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    if (w->events == events)
        return true;
    if (epoll_ctl(l->fd, how, w->fd, &e))
        return false;
    if (events == 0)
        loop_forget(l, w);
    w->events = events;
    return true;
}

bool loop_wait(struct loop *l, bool blocks)
{
    l->at = 0;
    l->count = epoll_wait(l->fd, l->events, LOOP_EVENTS, blocks ? -1 : 0);
    return l->count > 0;
}

void loop_tell(struct loop *l)
{
    while (l->at < l->count) {
        struct watch *w = l->events[l->at++].data.ptr;
        if (w)
            w->happen(w);
    }
}
