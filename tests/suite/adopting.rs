//! Old code, code of both kinds and new code on one shuffled stream of messages, each delivered several times, while
//! an old table is taken over: one effect each, none for what the old table knew. Judged by SQL alone.

use std::sync::{Arc, Mutex, PoisonError};

use idempotent_runtime::{Adoption, ClaimStore, Error, idempotent};
use sqlx::{AssertSqlSafe, Pool};
use tokio::task::JoinSet;

use crate::harness::{World, drop_after, numbers};
use crate::{Db, OLD_CLAIM, OLD_CLAIM_OF_CONSUMER, OLD_ID, Tx};

/// The steps of `guide::adoption`, as programs that run at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Generation {
    /// By hand.
    Old,
    /// With the attribute, and the old claim still in the body.
    Both,
    /// With the attribute alone.
    New,
}

/// One program: hand-written code that claims in the old table.
async fn by_hand(pool: &Pool<Db>, old_claim: &str, id: &str, fail: bool) -> sqlx::Result<()> {
    let mut tx = pool.begin_with(crate::BEGIN_TO_WRITE).await?;
    let claimed = sqlx::query(AssertSqlSafe(old_claim)).bind(id).execute(&mut *tx).await?;
    if claimed.rows_affected() == 1 {
        effect(&mut tx, id).await?;
        if fail {
            return Err(sqlx::Error::RowNotFound);
        }
        tx.commit().await?;
    }
    Ok(())
}

/// The other programs: the same handler with the old claim in its body, and without it.
#[idempotent(key = "{id}", consumer = "suite.credit")]
async fn credit(#[tx] tx: &mut Tx<'_>, id: &str, old_claim: Option<&str>, fail: bool) -> Result<(), Error> {
    if let Some(old_claim) = old_claim {
        let claimed = sqlx::query(AssertSqlSafe(old_claim)).bind(id).execute(&mut **tx).await?;
        if claimed.rows_affected() == 0 {
            return Ok(()); // the old code has done it
        }
    }
    effect(tx, id).await?;
    if fail { Err(sqlx::Error::RowNotFound.into()) } else { Ok(()) }
}

async fn effect(tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
    let insert = format!("INSERT INTO credits (id) VALUES ({})", crate::PARAMETER);
    sqlx::query(AssertSqlSafe(insert)).bind(id).execute(&mut **tx).await.map(drop)
}

/// The same ids in SQL and in Rust. One in ten has to be encoded, one in a hundred is longer than a key.
fn id_in_sql(prefix: &str) -> String {
    format!(
        "CASE WHEN number % 100 = 0 THEN CONCAT('{}', '{prefix}', number) \
         WHEN number % 10 = 0 THEN CONCAT('100% \u{e4}\"', '{prefix}', number) ELSE CONCAT('{prefix}', number) END",
        "x".repeat(300)
    )
}

fn id(prefix: &str, number: u32) -> String {
    match number {
        _ if number.is_multiple_of(100) => format!("{}{prefix}{number}", "x".repeat(300)),
        _ if number.is_multiple_of(10) => format!("100% \u{e4}\"{prefix}{number}"),
        _ => format!("{prefix}{number}"),
    }
}

/// A queue that delivers again what was not acknowledged.
struct Queue {
    deliveries: Mutex<Vec<String>>,
}

impl Queue {
    /// Each message so many times, shuffled.
    fn new(ids: impl Iterator<Item = String>, times: usize) -> Arc<Self> {
        let mut deliveries: Vec<String> = ids.flat_map(|id| std::iter::repeat_n(id, times)).collect();
        fastrand::shuffle(&mut deliveries);
        Arc::new(Self { deliveries: Mutex::new(deliveries) })
    }

    fn take(&self) -> Option<String> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// To anywhere in the rest.
    fn put_back(&self, id: String) {
        let mut deliveries = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        let place = fastrand::usize(..=deliveries.len());
        deliveries.insert(place, id);
    }
}

struct Adopted {
    world: World,
    store: ClaimStore<Db>,
    old_claim: &'static str,
}

impl Adopted {
    /// Two consumers of each generation take from one queue until it is empty. One delivery in ten fails, and one in
    /// ten is dropped on the way, except by the old code, which could not be dropped safely.
    fn consume(&self, generations: &[Generation], queue: &Arc<Queue>) -> JoinSet<()> {
        let mut consumers = JoinSet::new();
        for &generation in generations.iter().flat_map(|generation| [generation; 2]) {
            let (store, queue, old_claim) = (self.store.clone(), Arc::clone(queue), self.old_claim);
            consumers.spawn(async move {
                while let Some(id) = queue.take() {
                    let fail = fastrand::u8(0..10) == 0;
                    let polls = if fastrand::u8(0..10) == 0 { fastrand::usize(1..20) } else { usize::MAX };
                    let old_claim = Some(old_claim).filter(|_| generation != Generation::New);
                    let acknowledged = match (generation, old_claim) {
                        (Generation::Old, Some(old_claim)) => by_hand(store.pool(), old_claim, &id, fail).await.is_ok(),
                        _ => {
                            drop_after(polls, credit(&store, &id, old_claim, fail)).await.is_some_and(|end| end.is_ok())
                        }
                    };
                    if !acknowledged {
                        queue.put_back(id);
                    }
                }
            });
        }
        consumers
    }

    /// Adds messages to what has to have an effect.
    async fn expect(&self, prefix: &str, count: u32) {
        let id = id_in_sql(prefix);
        self.world.run(&format!("INSERT INTO expected SELECT {id} FROM {}", numbers(count))).await;
    }

    async fn judge(&self, when: &str) {
        for (what, sql) in [
            ("twice", "SELECT count(*) FROM (SELECT id FROM credits GROUP BY id HAVING count(*) > 1) AS twice"),
            ("not at all", "SELECT count(*) FROM expected WHERE id NOT IN (SELECT id FROM credits)"),
            (
                "although it was processed before",
                "SELECT count(*) FROM credits WHERE id NOT IN (SELECT id FROM expected)",
            ),
        ] {
            assert_eq!(self.world.number(sql).await, 0, "{when}: messages with an effect {what}");
        }
    }
}

const FRESH: u32 = 300;

/// Old messages, of which each step delivers some that no step before has delivered: what the bridge has met once, the
/// library's table knows from it.
fn old_messages(step: u32) -> impl Iterator<Item = String> {
    (1..=step * 200).map(|number| id("old-", number))
}

async fn adopt_while_both_generations_consume(columns: &str, old: u32, by_consumer: bool) {
    let world = World::not_migrated(12).await;
    if let Some(sql) = crate::READERS_BESIDE_WRITERS {
        world.run(sql).await;
    }
    world.run(&format!("CREATE TABLE credits (id {OLD_ID} NOT NULL)")).await;
    world.run(&format!("CREATE TABLE expected (id {OLD_ID} NOT NULL)")).await;
    // The old table has the very name that the library's has by default.
    world.run(&format!("CREATE TABLE processed_messages ({columns})")).await;
    let (names, values) = if by_consumer { ("consumer, id", "'credit', ") } else { ("id", "") };
    let (id_of_row, rows) = (id_in_sql("old-"), numbers(old));
    world.run(&format!("INSERT INTO processed_messages ({names}) SELECT {values}{id_of_row} FROM {rows}")).await;
    assert!(
        matches!(idempotent_runtime::migrate(&world.pool).await, Err(Error::Configuration(_))),
        "the name is taken"
    );

    // 1. The library's table, under a name of its own.
    let store = ClaimStore::builder(world.pool.clone()).table("idempotent_messages").build().unwrap();
    store.migrate().await.unwrap();
    let old_claim = if by_consumer { OLD_CLAIM_OF_CONSUMER } else { OLD_CLAIM };
    let adopted = Adopted { world, store, old_claim };
    let fresh = |prefix: &'static str| (1..=FRESH).map(move |number| id(prefix, number));
    let adoption = || {
        let adoption = Adoption::of_table("processed_messages");
        if by_consumer {
            adoption.consumer_column("consumer").renamed("credit", "suite.credit").left_out("mail")
        } else {
            adoption.handler("suite.credit")
        }
    };

    // 2. Old code and code of both kinds, side by side.
    adopted.expect("a-", FRESH).await;
    let queue = Queue::new(old_messages(1).chain(fresh("a-")), 3);
    adopted.consume(&[Generation::Old, Generation::Both], &queue).join_all().await;
    adopted.judge("old and both").await;

    // 3. The old code has ended. The rows become claims, while code of both kinds consumes.
    adopted.expect("b-", FRESH).await;
    let queue = Queue::new(old_messages(2).chain(fresh("a-")).chain(fresh("b-")), 2);
    let consumers = adopted.consume(&[Generation::Both], &queue);
    let counts = adopted.store.adopt(adoption()).await.unwrap();
    consumers.join_all().await;
    adopted.judge("both, while the old table is adopted").await;
    assert!(counts.read >= u64::from(old) && counts.copied > 0, "{counts:?}");
    let again = adopted.store.adopt(adoption()).await.unwrap();
    assert_eq!((again.copied, again.blank, again.expired), (0, 0, 0), "nothing is missing any more");

    // 4. Code of both kinds and new code, side by side.
    adopted.expect("c-", FRESH).await;
    let queue = Queue::new(old_messages(3).chain(fresh("a-")).chain(fresh("b-")).chain(fresh("c-")), 2);
    adopted.consume(&[Generation::Both, Generation::New], &queue).join_all().await;
    adopted.judge("both and new").await;

    // 5. Nobody looks at the old table any more.
    adopted.world.run("DROP TABLE processed_messages").await;
    let queue = Queue::new(old_messages(4).chain(fresh("a-")).chain(fresh("b-")).chain(fresh("c-")), 1);
    adopted.consume(&[Generation::New], &queue).join_all().await;
    adopted.judge("new").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_thousand_ids_are_adopted_while_both_generations_consume() {
    let columns = format!("id {OLD_ID} NOT NULL PRIMARY KEY");
    adopt_while_both_generations_consume(&columns, 100_000, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_table_of_two_columns_is_adopted_while_both_generations_consume() {
    let columns = format!("consumer VARCHAR(50) NOT NULL, id {OLD_ID} NOT NULL, PRIMARY KEY (consumer, id)");
    adopt_while_both_generations_consume(&columns, 3_000, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_table_of_two_columns_with_a_time_is_adopted_while_both_generations_consume() {
    let columns = format!(
        "consumer VARCHAR(50) NOT NULL, id {OLD_ID} NOT NULL, \
         processed_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (consumer, id)"
    );
    adopt_while_both_generations_consume(&columns, 3_000, true).await;
}
