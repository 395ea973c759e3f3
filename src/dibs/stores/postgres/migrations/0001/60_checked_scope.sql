-- What dibs.limit was asked for, as a row of dibs.scope. Refuses what dibs.limits would refuse.
create function dibs.checked_scope(
    queue text, task text, each_key boolean, concurrency integer, starts integer, per interval, rank bigint
) returns dibs.scope
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    span constant interval := dibs.exactly(per);
    wrong constant text := case
        when num_nonnulls(queue, task) <> 1 then 'a scope names a queue or a task: one of the two'
        when each_key and queue is null then 'each_key belongs to a queue: name the queue'
        when rank is null or rank < 0 then 'rank must be a number from 0'
        when num_nulls(starts, per) = 1 then 'a rate is so many starts in so much time: give both'
        when concurrency not between 0 and 1000000 then 'concurrency must be from 0 to 1000000'
        when starts not between 1 and 1000000 then 'the starts of a rate must be from 1 to 1000000'
        when span not between interval '1 ms' and interval '24 hours' then 'the time of a rate must be from 1 ms to 1 day'
        when dibs.micros(span) < starts then 'a rate is at most one start a microsecond'
    end;
begin
    if wrong is not null then
        raise '%', wrong using errcode = 'check_violation';
    end if;
    perform dibs.check_names(case when queue is null then 'task' else 'queue' end, array[coalesce(queue, task)]);
    return row(
        case when queue is null then 'task' when each_key then 'key' else 'queue' end, coalesce(queue, task), rank,
        concurrency, starts, span,
        make_interval(secs => ceil(dibs.micros(span)::numeric / starts)::double precision / 1000000)
    )::dibs.scope;
end
$$;
