-- Records how one claim ended. Returns the verdict: accepted or lost.
create function dibs.settle_one(
    id uuid, epoch integer, worker text, outcome text default 'succeeded', result json default null,
    error text default null, traceback text default '', delay interval default '0', steps json default null
) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if coalesce(outcome, '') not in ('succeeded', 'retry', 'failed', 'cancelled', 'released', 'snoozed') then
        raise 'outcome must be succeeded, retry, failed, cancelled, released or snoozed, not %', outcome
            using errcode = 'invalid_parameter_value';
    end if;
    if outcome in ('retry', 'failed') and error is null then
        raise 'an attempt that ends as % needs an error', outcome using errcode = 'invalid_parameter_value';
    end if;
    if outcome = 'succeeded' and steps is null then
        return dibs.succeed_one(id, epoch, worker, result);
    end if;
    return (dibs.settle(
        array[id], array[epoch], array[worker], array[outcome], array[result], array[error], array[traceback],
        array[delay], array[steps]
    ))[1];
end
$$;
