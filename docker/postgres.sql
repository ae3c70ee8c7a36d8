-- The role and the database of Lockstep, made by the image of PostgreSQL at its first start.
--
-- The role is no superuser: the agents have its password, and a job runs as its agent's user. The image's superuser
-- loses its password, so that it can log in only inside the container.
\set ON_ERROR_STOP on
\getenv password POSTGRES_PASSWORD
CREATE ROLE lockstep LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD :'password';
CREATE DATABASE lockstep OWNER lockstep;
ALTER ROLE CURRENT_USER PASSWORD NULL;
