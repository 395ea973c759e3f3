-- Locks the limits of a queue and of these tasks, in one order for all: by kind, then by name. Returns those locked.
-- Unless it may wait, because it holds limits already that come later, those that somebody else has locked are left out.
create function dibs.lock_scopes(queue text, tasks text[], may_wait boolean) returns setof dibs.scope
language plpgsql volatile
as $$
#variable_conflict use_column
begin
    if may_wait then
        return query
        select * from dibs.scope
        where (scope.kind in ('key', 'queue') and scope.name = lock_scopes.queue)
            or (scope.kind = 'task' and scope.name = any (tasks))
        order by scope.kind, scope.name for update;
    else
        return query
        select * from dibs.scope
        where (scope.kind in ('key', 'queue') and scope.name = lock_scopes.queue)
            or (scope.kind = 'task' and scope.name = any (tasks))
        order by scope.kind, scope.name for update skip locked;
    end if;
end
$$;
