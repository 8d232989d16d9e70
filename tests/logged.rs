//! What handlers return and what messages say is nobody's business but theirs: neither the library's events nor those of
//! sqlx, which logs every statement, nor errors hold anything of it.
//!
//! A program of its own, since SQLite's statements are logged by a thread of sqlx's, which only a subscriber of the whole
//! program hears.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

macro_rules! on {
    ($module:ident, $kind:ident, $db:ident, $tx:ident) => {
        mod $module {
            use idempotent_runtime::{ClaimStore, Error, idempotent};
            use sqlx::{$db, $tx};

            #[idempotent(key = "{id}", fingerprint = "{content}", replay)]
            async fn $module(_tx: &mut $tx<'_>, id: &str, content: &str) -> Result<String, Error> {
                Ok(format!("the answer to {content}"))
            }

            /// Everything that outcomes and errors say.
            pub(super) async fn say() -> String {
                let fresh = servers::Kind::$kind.fresh_database().await;
                let pool = sqlx::pool::PoolOptions::<$db>::new().connect(fresh.url()).await.expect("the database");
                idempotent_runtime::migrate(&pool).await.expect("the claim table");
                let mut said = String::new();
                for content in ["secret", "secret", "another secret"] {
                    said += &match $module(&pool, "1", content).await {
                        Ok(outcome) => outcome.as_str().to_owned(),
                        Err(error) => format!(" {error} {error:?}"),
                    };
                }
                let small = ClaimStore::builder(pool.clone()).max_stored_value(5).build().expect("a store");
                said += &format!("{:?}", $module(&small, "2", "secret").await);
                let damage = "UPDATE processed_messages SET value = concat('{', value, ':1}')";
                sqlx::query(damage).execute(&pool).await.expect("a damaged value");
                said += &format!("{:?}", $module(&pool, "1", "secret").await);
                said
            }
        }
    };
}

on!(sqlite, Sqlite, Sqlite, SqliteTransaction);
on!(postgres, Postgres, Postgres, PgTransaction);
on!(mariadb, Mariadb, MySql, MySqlTransaction);

#[tokio::test]
async fn stored_values_and_contents_are_in_no_log_and_no_error() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone());
    tracing::subscriber::set_global_default(subscriber.finish()).expect("the only one");
    for said in [sqlite::say().await, postgres::say().await, mariadb::say().await] {
        let log = String::from_utf8(log.0.lock().expect("the log").clone()).expect("text");
        for part in ["processed", "replayed", "FingerprintMismatch", "TooLarge", "Unreadable"] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
        assert!(log.contains("INSERT") && log.contains("processed_messages"), "statements are logged:\n{log}");
        // As text, and as the hexadecimal digits of it.
        for text in ["secret", "736563726574"] {
            assert!(!log.contains(text) && !said.contains(text), "{text} is in:\n{log}\n{said}");
        }
    }
}
