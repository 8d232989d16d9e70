//! The testing kit works inside `#[sqlx::test]`, which gives each test a database of its own.

use std::process::Command;

use idempotent_runtime::testing::{Failure, Kit};
use idempotent_runtime::{idempotent, migrate};
use sqlx::{Executor as _, MySqlPool, MySqlTransaction, PgPool, PgTransaction, SqlitePool, SqliteTransaction};

macro_rules! on {
    ($name:ident, $pool:ty, $tx:ident $(, $ignored:meta)?) => {
        mod $name {
            use super::*;

            #[idempotent(key = "{id}")]
            async fn $name(tx: &mut $tx<'_>, id: u64) -> sqlx::Result<()> {
                let _ = id;
                tx.execute("INSERT INTO effects (id) VALUES (1)").await?;
                Ok(())
            }

            #[sqlx::test]
            $(#[$ignored])?
            async fn a_handler_is_checked(pool: $pool) -> Result<(), Failure> {
                migrate(&pool).await?;
                pool.execute("CREATE TABLE effects (id BIGINT NOT NULL)").await?;
                Kit::new(&pool).check(async |n| $name(&pool, n).await).await
            }
        }
    };
}

on!(sqlite, SqlitePool, SqliteTransaction);
on!(postgres, PgPool, PgTransaction, ignore = "sqlx asks for DATABASE_URL: run by the test that starts the server");
on!(
    mariadb,
    MySqlPool,
    MySqlTransaction,
    ignore = "sqlx asks for DATABASE_URL: run by the test that starts the server"
);

/// A process of its own, since sqlx takes the server from the environment.
fn check(test: &str, url: &str) {
    let mut test_binary = Command::new(std::env::current_exe().expect("this test"));
    let run = test_binary.args(["--ignored", "--exact", test]).env("DATABASE_URL", url).output().expect("it runs");
    let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
async fn on_postgres_too() {
    let server = servers::Kind::Postgres.fresh_database().await;
    check("postgres::a_handler_is_checked", server.url());
}

#[tokio::test]
async fn on_mariadb_too() {
    let server = servers::Kind::Mariadb.fresh_database().await;
    check("mariadb::a_handler_is_checked", server.url());
}
