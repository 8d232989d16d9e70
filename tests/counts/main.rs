//! One consumer on each database, by the macro and by hand, for valgrind to watch while it delivers messages:
//! `consumer-to-count handler|by-hand|same-by-hand URL FRESH DUPLICATES`. All on one thread and one connection.

#[path = "../benches/benchmark/parts.rs"]
mod parts;

use std::env;
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::{Executor, IntoArguments, Pool};

/// Deliveries before anything is counted: they prepare statements and fill caches and buffers.
const WARM_UP: u32 = 20;

struct Event {
    tenant: String,
    number: u32,
}

/// How a message is processed.
#[derive(Clone, Copy)]
enum Way {
    ByMacro,
    /// As people write it, unverified.
    ByHand,
    /// The statements of the macro, without the library.
    SameByHand,
}

macro_rules! consumer {
    ($module:ident, $db:ident, $tx:ident, $consumer:literal, $claim:literal, $effect:literal) => {
        mod $module {
            use idempotent_runtime::{Outcome, idempotent};
            use sqlx::{Pool, $db, $tx};

            use super::parts::Parts;
            use super::{Event, Way};

            #[idempotent(key = "{event.tenant}:{event.number}", consumer = $consumer)]
            async fn credit(tx: &mut $tx<'_>, event: &Event) -> sqlx::Result<()> {
                sqlx::query($effect).bind(&*event.tenant).execute(&mut **tx).await.map(drop)
            }

            /// Whether the message was fresh.
            pub(super) async fn deliver(pool: &Pool<$db>, way: Way, event: &Event) -> sqlx::Result<bool> {
                let key = || format!("{}:{}", event.tenant, event.number);
                match way {
                    Way::ByMacro => return Ok(matches!(credit(pool, event).await?, Outcome::Processed(()))),
                    Way::SameByHand => {
                        let last = <$db as Parts>::NAMES.len() - 1;
                        return <$db as Parts>::process(pool, last, &key()).await.map(|()| true);
                    }
                    Way::ByHand => {}
                }
                let mut tx = pool.begin().await?;
                let claimed = sqlx::query($claim).bind($consumer).bind(key()).execute(&mut *tx).await?;
                if claimed.rows_affected() == 0 {
                    return Ok(false);
                }
                sqlx::query($effect).bind(&*event.tenant).execute(&mut *tx).await?;
                tx.commit().await?;
                Ok(true)
            }
        }
    };
}

consumer!(
    postgres,
    Postgres,
    PgTransaction,
    "postgres.credit",
    "INSERT INTO processed (consumer, id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
    "INSERT INTO effects (id, amount) VALUES ($1, 1)"
);
consumer!(
    mariadb,
    MySql,
    MySqlTransaction,
    "mariadb.credit",
    "INSERT IGNORE INTO processed (consumer, id) VALUES (?, ?)",
    "INSERT INTO effects (id, amount) VALUES (?, 1)"
);
consumer!(
    sqlite,
    Sqlite,
    SqliteTransaction,
    "sqlite.credit",
    "INSERT INTO processed (consumer, id) VALUES (?, ?) ON CONFLICT DO NOTHING",
    "INSERT INTO effects (id, amount) VALUES (?, 1)"
);

enum Consumer {
    Postgres(Pool<sqlx::Postgres>, Way, u32),
    Mariadb(Pool<sqlx::MySql>, Way, u32),
    Sqlite(Pool<sqlx::Sqlite>, Way, u32),
}

impl Consumer {
    async fn deliver_fresh(&mut self, messages: u32) {
        for _ in 0..messages {
            let (Self::Postgres(.., next) | Self::Mariadb(.., next) | Self::Sqlite(.., next)) = self;
            *next += 1;
            let number = *next;
            assert!(self.deliver(number).await, "a fresh message");
        }
    }

    async fn deliver_duplicates(&self, messages: u32) {
        for _ in 0..messages {
            assert!(!self.deliver(1).await, "a duplicate");
        }
    }

    async fn deliver(&self, number: u32) -> bool {
        let event = Event { tenant: "acme".to_owned(), number: 1_000_000 + number };
        let fresh = match self {
            Self::Postgres(pool, way, _) => postgres::deliver(pool, *way, &event).await,
            Self::Mariadb(pool, way, _) => mariadb::deliver(pool, *way, &event).await,
            Self::Sqlite(pool, way, _) => sqlite::deliver(pool, *way, &event).await,
        };
        fresh.expect("the database")
    }
}

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [way, url, fresh, duplicates] = arguments.as_slice() else { panic!("the first lines of this program say how") };
    let way = match way.as_str() {
        "handler" => Way::ByMacro,
        "same-by-hand" => Way::SameByHand,
        _ => Way::ByHand,
    };
    let [fresh, duplicates] = [fresh, duplicates].map(|n| n.parse().expect("a number"));
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(async {
        let mut consumer = match url.split(':').next() {
            Some("postgres") => Consumer::Postgres(pool(url).await, way, 0),
            Some("mysql") => Consumer::Mariadb(pool(url).await, way, 0),
            _ => Consumer::Sqlite(pool(url).await, way, 0),
        };
        consumer.deliver_fresh(WARM_UP).await;
        if duplicates > 0 || !matches!(way, Way::SameByHand) {
            consumer.deliver_duplicates(WARM_UP).await;
        }
        consumer.deliver_fresh(fresh).await;
        consumer.deliver_duplicates(duplicates).await;
    });
}

async fn pool<DB: idempotent_runtime::Database>(url: &str) -> Pool<DB>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    DB::Arguments: IntoArguments<DB>,
    for<'c> &'c Pool<DB>: Executor<'c, Database = DB>,
{
    // The pool's ping would be the same work on both sides. A timer that fires meanwhile is not.
    let options = PoolOptions::new().max_connections(1).test_before_acquire(false);
    let pool: Pool<DB> =
        options.idle_timeout(None::<Duration>).max_lifetime(None::<Duration>).connect(url).await.expect("the database");
    idempotent_runtime::migrate(&pool).await.expect("the claim table");
    for statement in [
        "CREATE TABLE effects (id VARCHAR(100) NOT NULL, amount INTEGER NOT NULL)",
        "CREATE TABLE processed (consumer VARCHAR(100), id VARCHAR(100), PRIMARY KEY (consumer, id))",
    ] {
        pool.execute(statement).await.expect(statement);
    }
    pool
}
