-- A JSON array of strings as an array; null stays null.
create function dibs.texts(list jsonb) returns text[]
language sql immutable parallel safe
as $$
    select case when jsonb_typeof(list) = 'array' then array(select jsonb_array_elements_text(list)) end
$$;
