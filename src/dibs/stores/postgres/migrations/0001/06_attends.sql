-- Whether a connection that said dibs.attend() still lives.
create function dibs.attends(listener integer) returns boolean
language plpgsql volatile
as $$
begin
    if pg_try_advisory_lock_shared(dibs.attendance(), listener) then
        perform pg_advisory_unlock_shared(dibs.attendance(), listener);
        return false;
    end if;
    return true;
end
$$;
