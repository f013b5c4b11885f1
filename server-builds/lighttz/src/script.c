#include "script.h"
#include "clock.h"
#include "field.h"
#include "text.h"
#include <errno.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    FIELDS_MAX = 16384,
    WALL_FACTOR = 20, /* times lua_time, for a script that others keep from its CPU */
    LOOKS = 10,       /* at the clock within lua_time */
};

struct script {
    const struct config *config;
    lua_State *lua;
    char *text; /* of the script */
    size_t length;
    size_t used;
    double wall_deadline;
    double cpu_deadline;
    unsigned long failures; /* not told of yet */
    double told;
    char fields[FIELDS_MAX];
};

bool script_takes(const struct config *config, struct str path)
{
    size_t n = config->lua_script ? strlen(config->lua_prefix) : 0;
    return n && path.n >= n && memcmp(path.p, config->lua_prefix, n) == 0;
}

static void *allocate(void *data, void *p, size_t old, size_t n)
{
    struct script *s = data;
    size_t others = s->used - (p ? old : 0);
    if (n > s->config->lua_memory || others > s->config->lua_memory - n)
        return NULL;
    void *q = n ? realloc(p, n) : NULL;
    if (n == 0)
        free(p);
    if (q || n == 0)
        s->used = others + n;
    return q;
}

static void out_of_time(lua_State *lua, lua_Debug *debug)
{
    (void)debug;
    luaL_error(lua, "out of time");
}

static const struct script *running; /* NULL: none */

/* Whenever the worker has used some CPU time. After a deadline every instruction fails, so that a
 * pcall() in the script cannot go on. (lua_sethook() may be called by signal handlers.) */
static void on_cpu_time(int number)
{
    const struct script *s = running;
    (void)number;
    if (s && (clock_s(CLOCK_THREAD_CPUTIME_ID) >= s->cpu_deadline ||
              clock_s(CLOCK_MONOTONIC) >= s->wall_deadline))
        lua_sethook(s->lua, out_of_time, LUA_MASKCOUNT, 1);
}

/* The kernel's timer also ends what spends its time within short calls of C functions, which a
 * count of instructions does not. (By system calls: the C library's timers bring its threads.) */
static bool start_timer(const struct config *config)
{
    int timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct sigaction action = {.sa_handler = on_cpu_time, .sa_flags = SA_RESTART};
    long long ns = (long long)config->lua_time * 1000000 / LOOKS;
    struct timespec look = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    struct itimerspec every = {look, look};
    if (sigaction(SIGALRM, &action, NULL) == 0 &&
        syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0 &&
        syscall(SYS_timer_settime, timer, 0, &every, NULL) == 0)
        return true;
    fprintf(stderr, "lighttz: lua_time: no timer: %s\n", strerror(errno));
    return false;
}

/* lua_pcall() within the bounds of time. */
static int call_in_time(struct script *s, int arguments, int results)
{
    double time = (double)s->config->lua_time / 1000;
    s->cpu_deadline = clock_s(CLOCK_THREAD_CPUTIME_ID) + time;
    s->wall_deadline = clock_s(CLOCK_MONOTONIC) + time * (double)WALL_FACTOR;
    running = s;
    int status = lua_pcall(s->lua, arguments, results, 0);
    running = NULL;
    lua_sethook(s->lua, NULL, 0, 0);
    return status;
}

/* xpcall(), but that the handler runs after the stack is unwound. Lua runs it within the hook that
 * raised the error, where no other hook could end it. */
static int xpcall(lua_State *lua)
{
    luaL_checktype(lua, 2, LUA_TFUNCTION);
    lua_pushvalue(lua, 1);
    lua_insert(lua, 3);
    lua_pushboolean(lua, true);
    lua_replace(lua, 1);
    if (lua_pcall(lua, lua_gettop(lua) - 3, LUA_MULTRET, 0) == LUA_OK) {
        lua_remove(lua, 2);
    } else {
        lua_pushboolean(lua, false);
        lua_replace(lua, 1);
        lua_pcall(lua, 1, LUA_MULTRET, 0); /* its own error, too, becomes the result */
    }
    return lua_gettop(lua);
}

/* setmetatable(), which is its upvalue, but for finalizers: no hook bounds them. */
static int set_metatable(lua_State *lua)
{
    if (lua_istable(lua, 2)) {
        lua_pushliteral(lua, "__gc");
        if (lua_rawget(lua, 2) != LUA_TNIL)
            return luaL_error(lua, "__gc metamethods are not allowed");
        lua_pop(lua, 1);
    }
    lua_pushvalue(lua, lua_upvalueindex(1));
    lua_insert(lua, 1);
    lua_call(lua, lua_gettop(lua) - 1, LUA_MULTRET);
    return lua_gettop(lua);
}

/* What computes, without files, processes and further code. */
static void open_libraries(lua_State *lua)
{
    static const luaL_Reg libraries[] = {{LUA_GNAME, luaopen_base},
                                         {LUA_TABLIBNAME, luaopen_table},
                                         {LUA_STRLIBNAME, luaopen_string},
                                         {LUA_MATHLIBNAME, luaopen_math},
                                         {LUA_UTF8LIBNAME, luaopen_utf8}};
    static const char *const removed[] = {"dofile", "loadfile", "load", "print", "collectgarbage"};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        luaL_requiref(lua, libraries[i].name, libraries[i].func, 1);
        lua_pop(lua, 1);
    }
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++) {
        lua_pushnil(lua);
        lua_setglobal(lua, removed[i]);
    }
    lua_getglobal(lua, "setmetatable");
    lua_pushcclosure(lua, set_metatable, 1);
    lua_setglobal(lua, "setmetatable");
    lua_pushcfunction(lua, xpcall);
    lua_setglobal(lua, "xpcall");
}

/* At most one line a second, with the error that Lua left unless `why` is known: clients choose how
 * often a failing page is called. */
static bool failed(struct script *s, const char *what, const char *why)
{
    double now = clock_s(CLOCK_MONOTONIC);
    s->failures++;
    if (s->told > 0 && now < s->told + 1)
        return false;
    bool text = s->lua && lua_type(s->lua, -1) == LUA_TSTRING;
    if (why == NULL)
        why = text ? lua_tostring(s->lua, -1) : s->lua ? "an error" : "out of memory";
    fprintf(stderr, "lighttz: %s: %s: %.500s", s->config->lua_script, what, why);
    fprintf(stderr, s->failures > 1 ? " (%lu failures)\n" : "\n", s->failures);
    s->failures = 0;
    s->told = now;
    return false;
}

/* Runs protected: memory may be too small for any of this. */
static int prepare(lua_State *lua)
{
    const struct script *s = *(struct script **)lua_getextraspace(lua);
    open_libraries(lua);
    const char *name = lua_pushfstring(lua, "@%s", s->config->lua_script);
    if (luaL_loadbufferx(lua, s->text, s->length, name, "t"))
        return lua_error(lua);
    lua_call(lua, 0, 0);
    if (lua_getglobal(lua, "handle") != LUA_TFUNCTION)
        return luaL_error(lua, "it defines no function handle()");
    return 0;
}

/* What lies there later may be another script, or out of reach. */
static bool read_text(struct script *s)
{
    size_t room = 0;
    FILE *f = fopen(s->config->lua_script, "re");
    free(s->text);
    s->text = NULL;
    ssize_t n = f ? getdelim(&s->text, &room, '\0', f) : 0;
    s->length = n > 0 ? (size_t)n : 0;
    bool good = f && !ferror(f);
    if (!good)
        failed(s, "reading", strerror(errno));
    if (f)
        fclose(f);
    return good;
}

static bool load(struct script *s)
{
    s->used = 0;
    if ((s->text == NULL || s->config->lua_reload) && !read_text(s))
        return false;
    s->lua = lua_newstate(allocate, s);
    if (s->lua == NULL)
        return failed(s, "loading", NULL);
    *(struct script **)lua_getextraspace(s->lua) = s;
    lua_pushcfunction(s->lua, prepare);
    return call_in_time(s, 0, 0) == LUA_OK || failed(s, "loading", NULL);
}

static void unload(struct script *s)
{
    if (s->lua)
        lua_close(s->lua);
    s->lua = NULL;
}

struct script *script_open(const struct config *config)
{
    struct script *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->config = config;
    if (start_timer(config) && load(s))
        return s;
    unload(s);
    free(s->text);
    free(s);
    return NULL;
}

static void set_str(lua_State *lua, const char *key, struct str value)
{
    lua_pushlstring(lua, value.p ? value.p : "", value.n);
    lua_setfield(lua, -2, key);
}

/* Field names in lower case; of repeated fields the last value. */
static void push_fields(lua_State *lua, const struct request *r)
{
    lua_newtable(lua);
    for (size_t at = 0; at < r->fields->count; at++) {
        luaL_Buffer b;
        struct str name = request_name(r, at);
        struct str value = request_value(r, at);
        char *p = luaL_buffinitsize(lua, &b, name.n);
        for (size_t i = 0; i < name.n; i++)
            p[i] = ascii_lower(name.p[i]);
        luaL_pushresultsize(&b, name.n);
        lua_pushlstring(lua, value.p, value.n);
        lua_rawset(lua, -3);
    }
}

struct call {
    struct script *script;
    const struct request *r;
    struct str path;
    struct str content;
    struct script_reply *reply;
};

/* The table at `index` as field lines. */
static struct str take_fields(struct script *s, lua_State *lua, int index, bool *has_type)
{
    size_t n = 0;
    *has_type = false;
    if (lua_isnoneornil(lua, index))
        return (struct str){s->fields, 0};
    luaL_argexpected(lua, lua_istable(lua, index), index, "table");
    for (lua_pushnil(lua); lua_next(lua, index); lua_pop(lua, 1)) {
        struct str name = {NULL, 0};
        struct str value;
        if (lua_type(lua, -2) == LUA_TSTRING)
            name.p = lua_tolstring(lua, -2, &name.n);
        value.p = luaL_checklstring(lua, -1, &value.n);
        if (!field_can_send(name, value) || n + name.n + value.n + 5 > FIELDS_MAX)
            luaL_error(lua, "a field that cannot be sent");
        *has_type = *has_type || str_ieq(name, STR("content-type"));
        n += text_format(s->fields + n, FIELDS_MAX - n, "%.*s: %.*s\r\n", (int)name.n, name.p,
                         (int)value.n, value.p);
    }
    return (struct str){s->fields, n};
}

/* Runs protected: whatever fails in here is an error of the script. */
static int call(lua_State *lua)
{
    struct call *c = lua_touserdata(lua, 1);
    lua_settop(lua, 0);
    lua_getglobal(lua, "handle");
    lua_createtable(lua, 0, 5);
    set_str(lua, "method", c->r->name);
    set_str(lua, "path", c->path);
    set_str(lua, "query", c->r->query.n ? str_from(c->r->query, 1) : c->r->query);
    set_str(lua, "body", c->content);
    push_fields(lua, c->r);
    lua_setfield(lua, -2, "fields");
    lua_call(lua, 1, 3); /* status, body, fields */
    lua_Integer status = luaL_checkinteger(lua, 1);
    if (status < 200 || status > 599)
        luaL_error(lua, "a status out of range");
    c->reply->status = (int)status;
    c->reply->body.p = luaL_optlstring(lua, 2, "", &c->reply->body.n);
    c->reply->fields = take_fields(c->script, lua, 3, &c->reply->has_type);
    lua_pushvalue(lua, 2);
    return 1; /* on the stack until the next call, so that it is not collected */
}

static bool answer(struct script *s, const struct request *r, struct str path, struct str content,
                   struct script_reply *reply)
{
    struct call c = {s, r, path, content, reply};
    if (s->config->lua_reload)
        unload(s);
    if (s->lua == NULL && !load(s)) {
        unload(s);
        return false;
    }
    lua_settop(s->lua, 0);
    lua_pushcfunction(s->lua, call);
    lua_pushlightuserdata(s->lua, &c);
    int status = call_in_time(s, 1, 1);
    if (status == LUA_OK)
        return true;
    failed(s, "handle()", NULL);
    if (status == LUA_ERRMEM) /* what it keeps would fail every later call */
        unload(s);
    return false;
}

bool script_answer(struct script *s, const struct request *r, struct str path, struct str content,
                   struct script_reply *reply)
{
    double begin = clock_s(CLOCK_MONOTONIC);
    bool good = answer(s, r, path, content, reply);
    reply->seconds = clock_s(CLOCK_MONOTONIC) - begin;
    return good;
}
