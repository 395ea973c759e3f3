-- Finishes succeeded jobs where they stand, fenced by epoch, worker and lease.
-- $1 ids, $2 epochs, $3 results, $4 worker; gives how many were accepted
with done as (
    update textbook.job set state = 'succeeded', finished_at = now(), locked_until = null, result = item.result
    from (
        select * from unnest($1::uuid[], $2::integer[], $3::json[]) as item (id, epoch, result) order by item.id
    ) as item
    where job.id = item.id and job.epoch = item.epoch and job.worker = $4 and job.state = 'running'
        and job.locked_until > now()
    returning 1
)
select count(*) from done
