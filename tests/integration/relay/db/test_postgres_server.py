"""The server that the tests start: it comes back after a kill with what was committed."""

import psycopg
import pytest

from tests.kits.servers.postgres import PostgresServer


def test_a_killed_server_comes_back_at_its_address_with_what_was_committed(
    own_postgres: PostgresServer,
) -> None:
    url = own_postgres.new_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t AS SELECT generate_series(1, 3) AS i")
        connection.commit()
        connection.execute("INSERT INTO t VALUES (4)")
        own_postgres.restart()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (3,)
    with psycopg.connect(own_postgres.socket_url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_one_user_needs_a_password(postgres: PostgresServer) -> None:
    with postgres.guarded_user("right") as user:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(postgres.url(user=user, password="wrong"))
        psycopg.connect(postgres.url(user=user, password="right")).close()
