//! One consumer on each database, by the macro and by hand, for valgrind to watch while it delivers messages:
//! `consumer-to-count handler|by-hand URL FRESH DUPLICATES`. All on one thread and one connection.

use std::env;
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::{Executor, IntoArguments, Pool};

/// Deliveries before anything is counted: they prepare statements and fill caches and buffers.
const WARM_UP: u32 = 20;

struct Event {
    tenant: String,
    number: u32,
    cents: i64,
}

macro_rules! consumer {
    ($module:ident, $db:ident, $tx:ident, $consumer:literal, $claim:literal, $effect:literal) => {
        mod $module {
            use idempotent_runtime::{Outcome, idempotent};
            use sqlx::{Pool, $db, $tx};

            use super::Event;

            #[idempotent(key = "{event.tenant}:{event.number}", consumer = $consumer)]
            async fn credit(tx: &mut $tx<'_>, event: &Event) -> sqlx::Result<()> {
                sqlx::query($effect).bind(event.cents).bind(7_i64).execute(&mut **tx).await.map(drop)
            }

            /// Whether the message was fresh.
            pub(super) async fn by_macro(pool: &Pool<$db>, event: &Event) -> sqlx::Result<bool> {
                Ok(matches!(credit(pool, event).await?, Outcome::Processed(())))
            }

            /// The same as people write it, unverified.
            pub(super) async fn by_hand(pool: &Pool<$db>, event: &Event) -> sqlx::Result<bool> {
                let mut tx = pool.begin().await?;
                let key = format!("{}:{}", event.tenant, event.number);
                let claimed = sqlx::query($claim).bind($consumer).bind(key).execute(&mut *tx).await?;
                if claimed.rows_affected() == 0 {
                    return Ok(false);
                }
                sqlx::query($effect).bind(event.cents).bind(7_i64).execute(&mut *tx).await?;
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
    "UPDATE accounts SET cents = cents + $1 WHERE id = $2"
);
consumer!(
    mariadb,
    MySql,
    MySqlTransaction,
    "mariadb.credit",
    "INSERT IGNORE INTO processed (consumer, id) VALUES (?, ?)",
    "UPDATE accounts SET cents = cents + ? WHERE id = ?"
);
consumer!(
    sqlite,
    Sqlite,
    SqliteTransaction,
    "sqlite.credit",
    "INSERT INTO processed (consumer, id) VALUES (?, ?) ON CONFLICT DO NOTHING",
    "UPDATE accounts SET cents = cents + ? WHERE id = ?"
);

enum Consumer {
    Postgres(Pool<sqlx::Postgres>, bool, u32),
    Mariadb(Pool<sqlx::MySql>, bool, u32),
    Sqlite(Pool<sqlx::Sqlite>, bool, u32),
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
        let event = Event { tenant: "acme".to_owned(), number: 1_000_000 + number, cents: 500 };
        let fresh = match self {
            Self::Postgres(pool, true, _) => postgres::by_macro(pool, &event).await,
            Self::Postgres(pool, false, _) => postgres::by_hand(pool, &event).await,
            Self::Mariadb(pool, true, _) => mariadb::by_macro(pool, &event).await,
            Self::Mariadb(pool, false, _) => mariadb::by_hand(pool, &event).await,
            Self::Sqlite(pool, true, _) => sqlite::by_macro(pool, &event).await,
            Self::Sqlite(pool, false, _) => sqlite::by_hand(pool, &event).await,
        };
        fresh.expect("the database")
    }
}

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [way, url, fresh, duplicates] = arguments.as_slice() else { panic!("the first lines of this program say how") };
    let (by_macro, [fresh, duplicates]) = (way == "handler", [fresh, duplicates].map(|n| n.parse().expect("a number")));
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(async {
        let mut consumer = match url.split(':').next() {
            Some("postgres") => Consumer::Postgres(pool(url).await, by_macro, 0),
            Some("mysql") => Consumer::Mariadb(pool(url).await, by_macro, 0),
            _ => Consumer::Sqlite(pool(url).await, by_macro, 0),
        };
        consumer.deliver_fresh(WARM_UP).await;
        consumer.deliver_duplicates(WARM_UP).await;
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
        "CREATE TABLE accounts (id BIGINT PRIMARY KEY, cents BIGINT NOT NULL)",
        "INSERT INTO accounts VALUES (7, 0)",
        "CREATE TABLE processed (consumer VARCHAR(100), id VARCHAR(100), PRIMARY KEY (consumer, id))",
    ] {
        pool.execute(statement).await.expect(statement);
    }
    pool
}
