//! What is measured: a handler of this library, and the lines that people write in its place.

use idempotent_runtime::{Batch, ClaimStore, Outcome, idempotent};
use servers::Kind;
use sqlx::pool::PoolOptions;
use sqlx::{
    AssertSqlSafe, Executor as _, MySql, MySqlTransaction, PgTransaction, Pool, Postgres, Sqlite, SqliteTransaction,
};

use crate::parts::Parts;

/// A way to process a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    /// By hand, with a pool's defaults: each `begin` pings first.
    ByHandPinging,
    /// By hand, with `test_before_acquire(false)`.
    ByHand,
    /// By hand, over a table that can be purged: it has an index on its time.
    ByHandPurgeable,
    /// The lines by hand with what is named, and with what was named before it: see `parts.rs`.
    Part(&'static str),
    /// The attribute, with a pool's defaults.
    Pinging,
    /// The attribute, with `test_before_acquire(false)`: its handlers find dead connections themselves.
    Attribute,
    /// The same over a store with a cache of seen messages.
    Cached,
}

impl Way {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ByHandPinging => "by hand, pool's defaults",
            Self::ByHand => "by hand, ping off",
            Self::ByHandPurgeable => "by hand, purgeable, ping off",
            Self::Part(name) => name,
            Self::Pinging => "idempotent, pool's defaults",
            Self::Attribute => "idempotent, ping off",
            Self::Cached => "idempotent, seen cache",
        }
    }

    const fn table(self) -> &'static str {
        if matches!(self, Self::ByHandPurgeable) { "by_hand_purgeable" } else { "by_hand" }
    }
}

/// A database with the tables of both.
pub(crate) trait Ways: Clone + Send + Sync + 'static {
    const KIND: Kind;
    /// The names of what a verified message needs, one after the other.
    const PARTS: &[&str];

    /// Pools of so many connections, all of them open, over new tables.
    fn connect(url: &str, connections: u32) -> impl Future<Output = Self> + Send;

    /// Whether the message was processed.
    fn single(&self, way: Way, id: &str) -> impl Future<Output = bool> + Send;

    /// How many of the messages were processed.
    fn batch(&self, way: Way, ids: Vec<String>) -> impl Future<Output = usize> + Send;

    fn execute(&self, sql: String) -> impl Future<Output = ()> + Send;

    /// Waits until what was taken from the pools has come back.
    fn idle(&self) -> impl Future<Output = ()> + Send;
}

macro_rules! ways {
    (
        $name:ident, $kind:ident, $db:ident, $tx:ident, $one:literal, $many:literal,
        options: $options:expr, time: $time:literal,
        claim: $claim:literal, effect: $effect:literal, claims: $claims:expr, effects: $effects:expr
    ) => {
        pub(crate) mod $name {
            use super::*;

            #[idempotent(key = "{id}", consumer = $one, retention = "7d")]
            async fn one(tx: &mut $tx<'_>, id: &str) -> sqlx::Result<()> {
                effect(tx, id).await
            }

            #[idempotent(key = "{id}", each = "id in ids", consumer = $many, retention = "7d")]
            async fn many(tx: &mut $tx<'_>, ids: Vec<String>) -> sqlx::Result<()> {
                effects(tx, &ids).await
            }

            async fn effect(tx: &mut $tx<'_>, id: &str) -> sqlx::Result<()> {
                sqlx::query($effect).bind(id).execute(&mut **tx).await.map(drop)
            }

            async fn effects<S: AsRef<str> + Sync>(tx: &mut $tx<'_>, ids: &[S]) -> sqlx::Result<()> {
                let ids: Vec<&str> = ids.iter().map(AsRef::as_ref).collect();
                $effects(tx, &ids).await
            }

            /// The twelve lines.
            async fn one_by_hand(pool: &Pool<$db>, table: &str, id: &str) -> sqlx::Result<bool> {
                let mut tx = pool.begin().await?;
                let claim = sqlx::query(AssertSqlSafe($claim.replace("{table}", table)));
                if claim.bind($one).bind(id).execute(&mut *tx).await?.rows_affected() == 0 {
                    return Ok(false); // sqlx queues the rollback
                }
                effect(&mut tx, id).await?;
                tx.commit().await?;
                Ok(true)
            }

            async fn many_by_hand(pool: &Pool<$db>, table: &str, ids: &[String]) -> sqlx::Result<usize> {
                let mut tx = pool.begin().await?;
                let fresh: Vec<String> = $claims(&mut tx, table, $many, ids).await?;
                if fresh.is_empty() {
                    return Ok(0);
                }
                effects(&mut tx, &fresh).await?;
                tx.commit().await?;
                Ok(fresh.len())
            }

            #[derive(Clone)]
            pub(crate) struct World {
                pinging: Pool<$db>,
                pool: Pool<$db>,
                store: ClaimStore<$db>,
            }

            impl World {
                const fn pool(&self, way: Way) -> &Pool<$db> {
                    if matches!(way, Way::ByHandPinging | Way::Pinging) { &self.pinging } else { &self.pool }
                }
            }

            impl Ways for World {
                const KIND: Kind = Kind::$kind;
                const PARTS: &[&str] = <$db as Parts>::NAMES;

                async fn connect(url: &str, connections: u32) -> Self {
                    let options = url.parse::<<<$db as sqlx::Database>::Connection as sqlx::Connection>::Options>();
                    let options = $options(options.expect("options"));
                    // All are open before anything is measured.
                    let pool = PoolOptions::<$db>::new().max_connections(connections).min_connections(connections);
                    let pinging = pool.clone().connect_with(options.clone()).await.expect("a pool");
                    let pool = pool.test_before_acquire(false).connect_with(options).await.expect("a pool");
                    idempotent_runtime::migrate(&pool).await.expect("the claim table");
                    for table in ["by_hand", "by_hand_purgeable"] {
                        let create = format!(
                            "CREATE TABLE IF NOT EXISTS {table} (consumer VARCHAR(100) NOT NULL, id VARCHAR(100) NOT NULL, \
                             processed_at {}, PRIMARY KEY (consumer, id))",
                            $time
                        );
                        pool.execute(AssertSqlSafe(create)).await.expect("a table");
                    }
                    let index = "CREATE INDEX IF NOT EXISTS by_time ON by_hand_purgeable (processed_at)";
                    pool.execute(index).await.expect("an index");
                    let effects = "CREATE TABLE IF NOT EXISTS effects (id VARCHAR(100) NOT NULL, amount INTEGER NOT NULL)";
                    pool.execute(effects).await.expect("a table");
                    let store = ClaimStore::builder(pool.clone()).seen_cache(100_000).build().expect("a store");
                    Self { pinging, pool, store }
                }

                async fn single(&self, way: Way, id: &str) -> bool {
                    let outcome = match way {
                        Way::ByHandPinging | Way::ByHand | Way::ByHandPurgeable => {
                            return one_by_hand(self.pool(way), way.table(), id).await.expect("by hand");
                        }
                        Way::Part(name) => {
                            let part = Self::PARTS.iter().position(|one| *one == name).expect("a part");
                            <$db as Parts>::process(&self.pool, part, id).await.expect("by hand");
                            return true;
                        }
                        Way::Pinging | Way::Attribute => one(self.pool(way), id).await,
                        Way::Cached => one(&self.store, id).await,
                    };
                    matches!(outcome.expect("the attribute"), Outcome::Processed(()))
                }

                async fn batch(&self, way: Way, ids: Vec<String>) -> usize {
                    match way {
                        Way::ByHandPinging | Way::ByHand | Way::ByHandPurgeable => {
                            many_by_hand(self.pool(way), way.table(), &ids).await.expect("by hand")
                        }
                        _ => {
                            let batch: Batch<()> = many(self.pool(way), ids).await.expect("the attribute");
                            batch.count(idempotent_runtime::ItemOutcome::Processed)
                        }
                    }
                }

                async fn execute(&self, sql: String) {
                    self.pool.execute(AssertSqlSafe(sql)).await.expect("a statement");
                }

                async fn idle(&self) {
                    for pool in [&self.pool, &self.pinging] {
                        while pool.num_idle() != pool.size() as usize {
                            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                        }
                    }
                }
            }
        }
    };
}

ways!(
    postgres, Postgres, Postgres, PgTransaction, "postgres.one", "postgres.many",
    options: std::convert::identity,
    time: "timestamptz NOT NULL DEFAULT now()",
    claim: "INSERT INTO {table} (consumer, id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
    effect: "INSERT INTO effects (id, amount) VALUES ($1, 1)",
    claims: async |tx: &mut PgTransaction<'_>, table: &str, consumer: &str, ids: &[String]| {
        let claim = "INSERT INTO {table} (consumer, id) SELECT $1, * FROM unnest($2::text[]) ON CONFLICT DO NOTHING RETURNING id";
        let claim = sqlx::query_scalar(AssertSqlSafe(claim.replace("{table}", table)));
        claim.bind(consumer).bind(ids).fetch_all(&mut **tx).await
    },
    effects: async |tx: &mut PgTransaction<'_>, ids: &[&str]| {
        let effects = sqlx::query("INSERT INTO effects (id, amount) SELECT *, 1 FROM unnest($1::text[])");
        effects.bind(ids).execute(&mut **tx).await.map(drop)
    }
);

ways!(
    mariadb, Mariadb, MySql, MySqlTransaction, "mariadb.one", "mariadb.many",
    options: std::convert::identity,
    time: "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP",
    claim: "INSERT IGNORE INTO {table} (consumer, id) VALUES (?, ?)",
    effect: "INSERT INTO effects (id, amount) VALUES (?, 1)",
    claims: async |tx: &mut MySqlTransaction<'_>, table: &str, consumer: &str, ids: &[String]| {
        let mut claim = sqlx::QueryBuilder::new(format!("INSERT IGNORE INTO {table} (consumer, id) "));
        claim.push_values(ids, |mut row, id| {
            row.push_bind(consumer).push_bind(id);
        });
        claim.push(" RETURNING id");
        claim.build_query_scalar().fetch_all(&mut **tx).await
    },
    effects: async |tx: &mut MySqlTransaction<'_>, ids: &[&str]| {
        let mut effects = sqlx::QueryBuilder::new("INSERT INTO effects (id, amount) ");
        effects.push_values(ids, |mut row, id| {
            row.push_bind(*id).push("1");
        });
        effects.build().execute(&mut **tx).await.map(drop)
    }
);

ways!(
    sqlite, Sqlite, Sqlite, SqliteTransaction, "sqlite.one", "sqlite.many",
    // As an application would set it up that has more than one writer.
    options: |options: sqlx::sqlite::SqliteConnectOptions| options
        .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
        .synchronous(sqlx::sqlite::SqliteSynchronous::Normal)
        .busy_timeout(std::time::Duration::from_mins(1)),
    time: "INTEGER NOT NULL DEFAULT CURRENT_TIMESTAMP",
    claim: "INSERT INTO {table} (consumer, id) VALUES (?, ?) ON CONFLICT DO NOTHING",
    effect: "INSERT INTO effects (id, amount) VALUES (?, 1)",
    claims: async |tx: &mut SqliteTransaction<'_>, table: &str, consumer: &str, ids: &[String]| {
        let mut claim = sqlx::QueryBuilder::new(format!("INSERT INTO {table} (consumer, id) "));
        claim.push_values(ids, |mut row, id| {
            row.push_bind(consumer).push_bind(id);
        });
        claim.push(" ON CONFLICT DO NOTHING RETURNING id");
        claim.build_query_scalar().fetch_all(&mut **tx).await
    },
    effects: async |tx: &mut SqliteTransaction<'_>, ids: &[&str]| {
        let mut effects = sqlx::QueryBuilder::new("INSERT INTO effects (id, amount) ");
        effects.push_values(ids, |mut row, id| {
            row.push_bind(*id).push("1");
        });
        effects.build().execute(&mut **tx).await.map(drop)
    }
);
