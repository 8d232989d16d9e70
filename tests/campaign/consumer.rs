//! A process that consumes the messages that its standard input brings, one `ID CENTS` a line, and prints `+ID` for each that it
//! acknowledges and `-ID` for each that has to come again. Some of its handlers fail, panic or are dropped at random,
//! after their effect and before it.
//!
//! `consumer URL`

use std::io::BufRead as _;
use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};

/// Messages that one process works on at once.
const AT_ONCE: usize = 4;

/// What goes wrong in one delivery.
#[derive(Clone, Copy)]
enum Mishap {
    None,
    Error,
    Panic,
    /// The future is dropped after so many microseconds.
    Dropped(u64),
}

impl Mishap {
    fn random() -> Self {
        match fastrand::u8(0..100) {
            0..5 => Self::Error,
            5..8 => Self::Panic,
            8..14 => Self::Dropped(fastrand::u64(0..8_000)),
            _ => Self::None,
        }
    }
}

macro_rules! consumer {
    ($module:ident, $db:ident, $tx:ident, $consumer:literal) => {
        mod $module {
            use std::time::Duration;

            use idempotent_runtime::{ClaimStore, Error, idempotent};
            use sqlx::{AssertSqlSafe, Executor as _, pool::PoolOptions, $db, $tx};

            use super::Mishap;

            #[idempotent(key = "{id}", consumer = $consumer, retry = 1)]
            async fn credit(tx: &mut $tx<'_>, id: &str, cents: u32, mishap: Mishap) -> Result<(), Error> {
                tx.execute(AssertSqlSafe(format!("INSERT INTO effects (id) VALUES ('{id}')"))).await?;
                let account = cents % 8;
                let add = format!("UPDATE accounts SET cents = cents + {cents} WHERE id = {account}");
                tx.execute(AssertSqlSafe(add)).await?;
                match mishap {
                    Mishap::Error => Err(sqlx::Error::RowNotFound.into()),
                    Mishap::Panic => std::panic::panic_any("on purpose"),
                    Mishap::None | Mishap::Dropped(_) => Ok(()),
                }
            }

            pub(super) async fn connect(url: &str) -> ClaimStore<$db> {
                let connections = u32::try_from(super::AT_ONCE).expect("a few");
                let pool = PoolOptions::new().max_connections(connections).acquire_timeout(Duration::from_secs(10));
                let pool = pool.connect(url).await.expect("the database");
                ClaimStore::builder(pool).seen_cache(1_000).build().expect("a store")
            }

            /// Whether the message may be acknowledged.
            pub(super) async fn deliver(store: ClaimStore<$db>, id: String, cents: u32) -> bool {
                let mishap = Mishap::random();
                let handling = credit(&store, &id, cents, mishap);
                match mishap {
                    Mishap::Dropped(micros) => {
                        matches!(tokio::time::timeout(Duration::from_micros(micros), handling).await, Ok(Ok(_)))
                    }
                    _ => handling.await.is_ok(),
                }
            }
        }
    };
}

consumer!(sqlite, Sqlite, SqliteTransaction, "campaign.credit-sqlite");
consumer!(postgres, Postgres, PgTransaction, "campaign.credit-postgres");
consumer!(mysql, MySql, MySqlTransaction, "campaign.credit-mysql");

macro_rules! consume {
    ($module:ident, $url:expr, $messages:expr) => {{
        let store = $module::connect($url).await;
        let messages = Arc::new(Mutex::new($messages));
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let (store, messages) = (store.clone(), Arc::clone(&messages));
                tokio::spawn(async move {
                    loop {
                        let Some(line): Option<String> = messages.lock().await.recv().await else { return };
                        let (id, cents) = line.split_once(' ').expect("ID CENTS");
                        let cents = cents.parse().expect("a number");
                        // A task of its own, whose panic is not this one's.
                        let delivered = tokio::spawn($module::deliver(store.clone(), id.to_owned(), cents)).await;
                        println!("{}{id}", if delivered.unwrap_or(false) { '+' } else { '-' });
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.await.expect("no panic");
        }
    }};
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    std::panic::set_hook(Box::new(|info| {
        if info.payload().downcast_ref() != Some(&"on purpose") {
            eprintln!("{info}");
        }
    }));
    let url = std::env::args().nth(1).expect("consumer URL");
    let (sender, messages) = mpsc::channel::<String>(64);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    match url.split(':').next() {
        Some("sqlite") => consume!(sqlite, &url, messages),
        Some("postgres") => consume!(postgres, &url, messages),
        _ => consume!(mysql, &url, messages),
    }
}
