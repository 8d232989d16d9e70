//! A database with the claim table and a table of effects, and futures that are dropped half way.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Executor as _, Pool, Row as _};

use crate::{Connection, Db, Fresh};

/// A fresh database, migrated.
pub(crate) struct World {
    pub(crate) pool: Pool<Db>,
    /// Looks at what is committed, from outside.
    pub(crate) observer: Pool<Db>,
    pub(crate) fresh: Fresh,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_connections(8).await
    }

    pub(crate) async fn with_connections(connections: u32) -> Self {
        let world = Self::not_migrated(connections).await;
        idempotent_runtime::migrate(&world.pool).await.expect("the claim table");
        world.run("CREATE TABLE effects (id VARCHAR(100) NOT NULL)").await;
        world.run("CREATE TABLE singles (id VARCHAR(100) NOT NULL PRIMARY KEY)").await;
        world
    }

    pub(crate) async fn not_migrated(connections: u32) -> Self {
        let fresh = crate::fresh().await;
        let pool = connect(&fresh, connections).await;
        let observer = connect(&fresh, 1).await;
        Self { pool, observer, fresh }
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.observer.execute(AssertSqlSafe(sql)).await.expect(sql);
    }

    /// Not prepared: sqlx keeps a hundred statements, and to close one on MariaDB costs a delayed ACK, 40 ms, because its
    /// sockets have Nagle's algorithm on.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&self.observer).await.expect(sql);
        row.get(0)
    }

    /// Committed effects.
    pub(crate) async fn effects(&self) -> i64 {
        self.number("SELECT count(*) FROM effects").await
    }

    /// Committed claims.
    pub(crate) async fn claims(&self) -> i64 {
        self.number("SELECT count(*) FROM processed_messages").await
    }

    /// Claims of the handler `record`: `prefix-1`, `prefix-2` and so on, which expire so many milliseconds from now.
    pub(crate) async fn add_claims(&self, prefix: &str, count: u32, millis: i64) {
        let key = if self.fresh.kind() == servers::Kind::Mariadb { "`key`" } else { "key" };
        self.run(&format!(
            "INSERT INTO processed_messages (consumer, sender, {key}, expires_at) \
             SELECT 'tests.record', '', CONCAT('{prefix}-', number), {} FROM {}",
            crate::from_now(millis),
            numbers(count)
        ))
        .await;
    }

    pub(crate) async fn effects_of(&self, id: &str) -> i64 {
        self.number(&format!("SELECT count(*) FROM effects WHERE id = '{id}'")).await
    }
}

/// How often: `ordinary` in the ordinary run, `long` with `IDEMPOTENT_TEST_LONG=1`.
pub(crate) fn rounds(ordinary: usize, long: usize) -> usize {
    if std::env::var_os("IDEMPOTENT_TEST_LONG").is_some() { long } else { ordinary }
}

/// SQL for a table with the column `number`: 1 to `count`.
pub(crate) fn numbers(count: u32) -> String {
    let digits: Vec<_> = (0..10).map(|digit| format!("SELECT {digit} AS digit")).collect();
    let digits = digits.join(" UNION ALL ");
    // From its digits, of which there are as many as the count has.
    let powers: Vec<_> = (0..count.to_string().len()).map(|power| 10_u32.pow(u32::try_from(power).unwrap())).collect();
    let sum: Vec<_> = powers.iter().map(|power| format!("{power} * d{power}.digit")).collect();
    let from: Vec<_> = powers.iter().map(|power| format!("({digits}) AS d{power}")).collect();
    let (sum, from) = (sum.join(" + "), from.join(" CROSS JOIN "));
    format!("(SELECT n + 1 AS number FROM (SELECT {sum} AS n FROM {from}) AS digits WHERE n < {count}) AS numbers")
}

pub(crate) async fn connect(fresh: &Fresh, connections: u32) -> Pool<Db> {
    PoolOptions::new().max_connections(connections).connect(&crate::url(fresh)).await.expect("the test database")
}

/// A pool whose sessions begin with this statement.
pub(crate) async fn connect_with(fresh: &Fresh, connections: u32, sql: String) -> Pool<Db> {
    let options =
        PoolOptions::new().max_connections(connections).after_connect(move |connection: &mut Connection, _| {
            let sql = sql.clone();
            Box::pin(async move { connection.execute(AssertSqlSafe(sql)).await.map(drop) })
        });
    options.connect(&crate::url(fresh)).await.expect("the test database")
}

/// What a future comes to, `None` if it panics.
pub(crate) async fn unless_it_panics<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(polled) => polled.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// Polls a future at most `polls` times and then drops it where it is; `None` if it had not finished.
pub(crate) async fn drop_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    struct Limited<'a, F> {
        future: Pin<&'a mut F>,
        left: usize,
    }
    impl<F: Future> Future for Limited<'_, F> {
        type Output = Option<F::Output>;
        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            if self.left == 0 {
                return Poll::Ready(None);
            }
            self.left -= 1;
            match self.future.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if self.left == 0 => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        }
    }
    let future = pin!(future);
    Limited { future, left: polls }.await
}
