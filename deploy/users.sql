-- Makes the database of Carillon and its two users. A superuser runs it with psql, once, before carillon migrate.
-- The passwords are in the folder that the environment variable SECRETS names; deploy/secrets.sh makes them.
\set ON_ERROR_STOP on
\set password `cat "${SECRETS:-/run/secrets}/database_password"`
\set api_password `cat "${SECRETS:-/run/secrets}/api_database_password"`

CREATE ROLE carillon_api NOLOGIN;
CREATE ROLE carillon_platform NOLOGIN;
CREATE ROLE carillon_engine NOLOGIN BYPASSRLS;

-- DATABASE_URL: owns the database, migrates it, sweeps and delivers.
CREATE ROLE carillon LOGIN PASSWORD :'password' IN ROLE carillon_api, carillon_platform, carillon_engine;
-- CARILLON_API_DATABASE_URL: the requests of tenants.
CREATE ROLE carillon_web LOGIN PASSWORD :'api_password' IN ROLE carillon_api, carillon_platform;

CREATE DATABASE carillon OWNER carillon;
REVOKE ALL ON DATABASE carillon FROM PUBLIC;
GRANT CONNECT ON DATABASE carillon TO carillon_web;
