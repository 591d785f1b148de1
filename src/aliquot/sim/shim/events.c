/* Event sets. A set holds the kinds of events per GPU, and the last event that it has seen. */
#include "shim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_GPUS 64

struct event_set {
    pthread_mutex_t lock;
    long long seen;
    int count;
    struct {
        int gpu;
        unsigned long long types;
    } wanted[MOST_GPUS];
};

struct event_data {
    handle device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

API int nvmlEventSetCreate(void **out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask(&r, "EventSetCreate");
    if (rc)
        return rc;
    struct event_set *set = calloc(1, sizeof *set);
    if (!set)
        return UNKNOWN;
    pthread_mutex_init(&set->lock, NULL);
    set->seen = r.number[0];
    *out = set;
    return SUCCESS;
}

API int nvmlEventSetFree(void *given)
{
    struct reply r;
    if (!given)
        return INVALID_ARGUMENT;
    int rc = ask(&r, "EventSetFree");
    pthread_mutex_destroy(&((struct event_set *)given)->lock);
    free(given);
    return rc;
}

API int nvmlDeviceRegisterEvents(handle h, unsigned long long types, void *given)
{
    struct event_set *set = given;
    struct address a;
    unsigned long long supported;
    if (!set || open_handle(h, DEVICE, DEVICE, &a))
        return INVALID_ARGUMENT;
    int rc = nvmlDeviceGetSupportedEventTypes(h, &supported);
    if (rc)
        return rc;
    if (types & ~supported)
        return NOT_SUPPORTED;
    pthread_mutex_lock(&set->lock);
    int i = 0;
    while (i < set->count && set->wanted[i].gpu != a.gpu)
        i++;
    if (i < MOST_GPUS) {
        if (i == set->count)
            set->wanted[set->count++].gpu = a.gpu;
        set->wanted[i].types = types;
    }
    pthread_mutex_unlock(&set->lock);
    return i < MOST_GPUS ? SUCCESS : UNKNOWN;
}

API int nvmlEventSetWait_v2(void *given, struct event_data *out, unsigned milliseconds)
{
    struct event_set *set = given;
    struct reply r;
    char wish[MOST_GPUS * 32] = "";
    size_t length = 0;
    if (!set || !out)
        return INVALID_ARGUMENT;
    pthread_mutex_lock(&set->lock);
    for (int i = 0; i < set->count; i++)
        length += (size_t)snprintf(wish + length, sizeof wish - length, " %d %llu", set->wanted[i].gpu,
                                   set->wanted[i].types);
    long long seen = set->seen;
    pthread_mutex_unlock(&set->lock);
    int rc = ask(&r, "EventSetWait %lld %u%s", seen, milliseconds, wish);
    if (rc)
        return rc;
    pthread_mutex_lock(&set->lock);
    set->seen = r.number[0];
    pthread_mutex_unlock(&set->lock);
    *out = (struct event_data){
        .device = make_handle(DEVICE, r.number[1], -1, -1),
        .type = (unsigned long long)r.number[2],
        .data = (unsigned long long)r.number[3],
        .gpu_instance = (unsigned)r.number[4], /* -1 becomes 0xFFFFFFFF: not attributed */
        .compute_instance = (unsigned)r.number[5],
    };
    return SUCCESS;
}

API int nvmlEventSetWait(void *set, struct event_data *out, unsigned milliseconds)
{
    return nvmlEventSetWait_v2(set, out, milliseconds);
}
