-- A job's errors with one more attempt behind them; the last ten are kept.
create function dibs.with_error(
    errors json, attempt integer, epoch integer, worker text, started_at timestamptz, ended_at timestamptz,
    error text, traceback text
) returns json
language sql stable parallel safe
as $$
    select json_agg(entry order by place)
    from (
        select entry, place
        from (
            select entry, place from json_array_elements(errors) with ordinality as known (entry, place)
            union all
            select
                json_build_object(
                    'attempt', attempt, 'epoch', epoch, 'worker', worker, 'started_at', started_at,
                    'ended_at', ended_at, 'error', error, 'traceback', traceback
                ),
                1000
        ) as every
        order by place desc
        limit 10
    ) as latest
$$;
