-- Make the role of an old volume an ordinary one, and move its rights to `postgres`.
--
--     docker compose exec -T postgres psql -U lockstep -d lockstep < docker/old_volume.sql
--
-- Until Lockstep 0.1.0 the image of PostgreSQL made the role `lockstep` itself, as its first superuser. That one can be
-- neither demoted nor renamed by itself, and owns the tables. So a role for the change renames it to `postgres`, makes a
-- new `lockstep` as docker/postgres.sql does, and gives it database and tables.
\set ON_ERROR_STOP on
\getenv password POSTGRES_PASSWORD
CREATE ROLE lockstep_change LOGIN SUPERUSER;
\connect lockstep lockstep_change
BEGIN;
ALTER ROLE lockstep RENAME TO postgres;
ALTER ROLE postgres PASSWORD NULL;
CREATE ROLE lockstep LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD :'password';
ALTER DATABASE lockstep OWNER TO lockstep;
-- Indexes and the sequences of columns follow their table.
SELECT format('ALTER TABLE %s OWNER TO lockstep', oid::regclass)
FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')
\gexec
COMMIT;
\connect lockstep postgres
DROP ROLE lockstep_change;
