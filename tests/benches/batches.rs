//! Batches against single messages and against batches by hand, interleaved in one run.
//!
//! `cargo bench -p tests --bench batches`. Compare the columns of one run; the times are this machine's. Round trips are
//! counted by a proxy and are the same everywhere.

use std::time::{Duration, Instant};

use servers::Proxy;

const ROUNDS: u32 = 12;
const BATCH: u32 = 100;

macro_rules! on {
    ($module:ident, $kind:ident, $db:ident, $tx:ident, $one:literal, $many:literal, $by_hand:expr) => {
        mod $module {
            use idempotent_runtime::{Batch, Outcome, idempotent};
            use sqlx::pool::PoolOptions;
            use sqlx::{$db, $tx, AssertSqlSafe, Executor as _, Pool};

            #[idempotent(key = "{id}", consumer = $one)]
            async fn one(tx: &mut $tx<'_>, id: &str) -> sqlx::Result<()> {
                effects(tx, &[id.to_owned()]).await
            }

            #[idempotent(key = "{id}", each = "id in ids", consumer = $many)]
            async fn many(tx: &mut $tx<'_>, ids: Vec<String>) -> sqlx::Result<()> {
                effects(tx, &ids).await
            }

            async fn effects(tx: &mut $tx<'_>, ids: &[String]) -> sqlx::Result<()> {
                let rows: Vec<String> = ids.iter().map(|id| format!("('{id}')")).collect();
                tx.execute(AssertSqlSafe(format!("INSERT INTO effects (id) VALUES {}", rows.join(", ")))).await.map(drop)
            }

            /// What people write: one INSERT of many rows, without verification.
            async fn by_hand(pool: &Pool<$db>, ids: &[String]) -> sqlx::Result<()> {
                let mut tx = pool.begin().await?;
                let rows: Vec<String> = ids.iter().map(|id| format!("('c', '{id}')")).collect();
                tx.execute(AssertSqlSafe(format!($by_hand, rows.join(", ")))).await?;
                effects(&mut tx, ids).await?;
                tx.commit().await
            }

            pub(super) struct World {
                _fresh: servers::Database,
                pool: Pool<$db>,
                next: u32,
            }

            impl World {
                pub(super) async fn new(through: Option<&str>, fresh: servers::Database) -> Self {
                    let options = PoolOptions::new().max_connections(1).test_before_acquire(false);
                    let pool: Pool<$db> = options.connect(through.unwrap_or(fresh.url())).await.expect("the database");
                    idempotent_runtime::migrate(&pool).await.expect("the claim table");
                    for table in [
                        "CREATE TABLE effects (id VARCHAR(100) NOT NULL)",
                        "CREATE TABLE claims (consumer VARCHAR(128) NOT NULL, id VARCHAR(255) NOT NULL, PRIMARY KEY (consumer, id))",
                    ] {
                        pool.execute(table).await.expect(table);
                    }
                    Self { _fresh: fresh, pool, next: 0 }
                }

                pub(super) fn ids(&mut self, count: u32) -> Vec<String> {
                    self.next += count;
                    (self.next - count..self.next).map(|id| format!("evt_{id:012}")).collect()
                }

                pub(super) async fn one_by_one(&mut self, ids: Vec<String>) {
                    for id in ids {
                        assert!(matches!(one(&self.pool, &id).await, Ok(Outcome::Processed(()))));
                    }
                }

                pub(super) async fn in_a_batch(&mut self, ids: Vec<String>) {
                    let count = ids.len();
                    let Batch { outcomes, .. } = many(&self.pool, ids).await.expect("a batch");
                    assert_eq!(outcomes.len(), count);
                }

                pub(super) async fn by_hand(&mut self, ids: Vec<String>) {
                    by_hand(&self.pool, &ids).await.expect("a batch by hand");
                }

                pub(super) async fn idle(&self) {
                    while self.pool.num_idle() == 0 {
                        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                    }
                }
            }

            pub(super) const KIND: servers::Kind = servers::Kind::$kind;
        }
    };
}

on!(
    sqlite,
    Sqlite,
    Sqlite,
    SqliteTransaction,
    "sqlite.one",
    "sqlite.many",
    "INSERT INTO claims VALUES {} ON CONFLICT DO NOTHING RETURNING id"
);
on!(
    postgres,
    Postgres,
    Postgres,
    PgTransaction,
    "postgres.one",
    "postgres.many",
    "INSERT INTO claims VALUES {} ON CONFLICT DO NOTHING RETURNING id"
);
on!(mariadb, Mariadb, MySql, MySqlTransaction, "mariadb.one", "mariadb.many", "INSERT IGNORE INTO claims VALUES {}");

macro_rules! measure {
    ($module:ident) => {{
        let mut world = $module::World::new(None, $module::KIND.fresh_database().await).await;
        world.idle().await;
        let mut times = [Duration::ZERO; 3];
        for round in 0..=ROUNDS {
            let ways = [world.ids(BATCH), world.ids(BATCH), world.ids(BATCH)];
            let [single, batch, hand] = ways;
            let mut took = [Duration::ZERO; 3];
            let start = Instant::now();
            world.one_by_one(single).await;
            took[0] = start.elapsed();
            let start = Instant::now();
            world.in_a_batch(batch).await;
            took[1] = start.elapsed();
            let start = Instant::now();
            world.by_hand(hand).await;
            took[2] = start.elapsed();
            // The first round prepares statements and fills caches.
            for (time, took) in times.iter_mut().zip(took).filter(|_| round > 0) {
                *time += took;
            }
        }
        let micros = times.map(|time| time.as_secs_f64() * 1e6 / f64::from(ROUNDS * BATCH));
        println!(
            "| {} | {:.0} | {:.1} | {:.1} | {:.1} | {:.2} |",
            $module::KIND.name(),
            micros[0],
            micros[1],
            micros[2],
            micros[0] / micros[1],
            micros[2] / micros[1]
        );
    }};
}

macro_rules! trips {
    ($module:ident) => {{
        let fresh = $module::KIND.fresh_database().await;
        let proxy = Proxy::start(fresh.url()).await;
        let mut world = $module::World::new(Some(proxy.url()), fresh).await;
        let mut cells = String::new();
        for count in [1_u32, 10, 100, 1000] {
            let warm_up = world.ids(count);
            world.in_a_batch(warm_up).await;
            world.idle().await;
            let batch = world.ids(count);
            let ((), trips) = proxy.round_trips_of(world.in_a_batch(batch)).await;
            let per_message = f64::from(u32::try_from(trips).expect("few")) / f64::from(count);
            cells += &format!(" {trips} ({per_message}) |");
        }
        println!("| {} |{cells}", $module::KIND.name());
    }};
}

#[tokio::main]
async fn main() {
    println!(
        "Round trips that a batch waits for, and per message:\n\n| | 1 | 10 | 100 | 1000 |\n|---|---|---|---|---|"
    );
    trips!(postgres);
    trips!(mariadb);
    println!(
        "\nµs a message, {ROUNDS} rounds of {BATCH} messages each way on one connection, its ping off:\n\n\
         | | one by one | batch of {BATCH} | the same by hand | one by one / batch | by hand / batch |\n|---|---|---|---|---|---|"
    );
    measure!(sqlite);
    measure!(postgres);
    measure!(mariadb);
}
