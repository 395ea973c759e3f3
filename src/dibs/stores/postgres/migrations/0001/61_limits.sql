-- The limits that are set, queues first, then tasks, by name, a queue's own before that of its keys; with `job` only those
-- that it comes under, as far as they are used for its key; see Store.limits. What runs is counted, as dibs.counts does.
create function dibs.limits(job uuid default null) returns table (
    queue text, task text, each_key boolean, concurrency integer, starts integer, per interval, rank bigint, key text,
    running bigint, next_start timestamptz
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
begin
    return query
    with held as materialized (
        select other.queue, other.task, other.limit_key from dibs.job as other
        where other.id = any ((select dibs.maybe_running())::uuid[]) and other.locked_until > moment
    )
    select
        case when scope.kind <> 'task' then scope.name end, case when scope.kind = 'task' then scope.name end,
        scope.kind = 'key', scope.concurrency, scope.starts, scope.per, scope.rank,
        case when scope.kind = 'key' then own.limit_key end,
        case when scope.kind <> 'key' or own.id is not null then (
            select count(*) from held
            where case scope.kind
                when 'task' then held.task = scope.name
                when 'queue' then held.queue = scope.name
                else held.queue = scope.name and held.limit_key = own.limit_key
            end
        ) end,
        case when bucket.full_at - scope.apart * (scope.starts - 1) > moment
            then bucket.full_at - scope.apart * (scope.starts - 1) end
    from dibs.scope
    left join dibs.jobs as own on own.id = limits.job
    left join dibs.bucket on bucket.kind = scope.kind and bucket.name = scope.name
        and bucket.key = case when scope.kind = 'key' then own.limit_key else '' end
    where limits.job is null or case scope.kind
        when 'task' then own.task = scope.name
        when 'queue' then own.queue = scope.name
        else own.queue = scope.name and own.limit_key is not null
    end
    order by scope.kind = 'task', scope.name, scope.kind <> 'queue';
end
$$;
