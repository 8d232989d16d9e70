//! Databases for the tests.
//!
//! [`Kind::fresh_database`] gives a test an empty database of its own, so that tests run in parallel. PostgreSQL and MariaDB
//! are private servers: started on first use on a free port, thrown away when the process ends, however it ends.
//! `tests/run` starts them once for all test binaries. To use servers of your own, name an account that may create
//! databases:
//!
//! | variable | for example |
//! |---|---|
//! | `IDEMPOTENT_TEST_POSTGRES` | `postgres://postgres:secret@127.0.0.1:5432/postgres` |
//! | `IDEMPOTENT_TEST_POSTGRES_LOG` | `/var/log/postgresql/main.log`; its `log_line_prefix` must hold `%d` |
//! | `IDEMPOTENT_TEST_MYSQL` | `mysql://root:secret@127.0.0.1:3306/mysql` |
//! | `IDEMPOTENT_TEST_MYSQL_LOG` | `/var/log/mysql/error.log` |
//!
//! [`Proxy`] stands between a test and a server: it counts round trips and loses connections at a chosen moment.

mod admin;
mod database;
mod distance;
mod mariadb;
mod pgbouncer;
mod postgres;
mod process;
mod proxy;
mod server;
mod sqlite;

pub use database::{Database, Kind};
pub use distance::Distance;
pub use pgbouncer::PgBouncer;
pub use proxy::{Cut, Proxy, Which};
pub use server::Server;
pub use sqlite::sqlite_version;

use tokio::sync::OnceCell;

/// The PostgreSQL server of this process.
///
/// # Panics
///
/// Without one, naming the command that installs it.
pub async fn postgres() -> &'static Server {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    shared(&SERVER, Kind::Postgres).await
}

/// The MariaDB server of this process.
///
/// # Panics
///
/// Without one, naming the command that installs it.
pub async fn mariadb() -> &'static Server {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    shared(&SERVER, Kind::Mariadb).await
}

async fn shared(cell: &'static OnceCell<Server>, kind: Kind) -> &'static Server {
    match cell.get_or_try_init(|| Server::find_or_start(kind)).await {
        Ok(server) => server,
        Err(error) => panic!("{error}"),
    }
}
