-- Gives out no more jobs of the queue, or gives them out again; see Store.pause.
create function dibs.pause(queue text, paused boolean default true) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform dibs.check_names('queue', array[queue]);
    insert into dibs.queue as known (name, paused) values (pause.queue, pause.paused)
    on conflict (name) do update set paused = pause.paused;
    if not paused then
        perform dibs.wake(array[queue]);
    end if;
end
$$;
