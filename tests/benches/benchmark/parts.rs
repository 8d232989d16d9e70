//! What the difference to the lines by hand is made of: the same lines, with one thing after another that a verified
//! message needs, and the attribute. All through sqlx, with the ping off.

use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, MySql, MySqlConnection, PgConnection, Pool, Postgres, Sqlite,
    SqliteConnection,
};

/// A database's ways between the lines by hand and the attribute.
pub(crate) trait Parts: sqlx::Database {
    const NAMES: &[&str];

    /// Processes a fresh message as the lines by hand over a table that can be purged do, with what is named up to here.
    fn process(pool: &Pool<Self>, part: usize, id: &str) -> impl Future<Output = sqlx::Result<()>> + Send;
}

impl Parts for Postgres {
    const NAMES: &[&str] = &[
        "a table that says when a claim expires, and whose it is",
        "a claim that waits for a rival with a limit",
        "the proof of the transaction: a cursor, closed with COMMIT in one request",
        "an empty transaction, for sqlx to close the one that it counts",
    ];

    async fn process(pool: &Pool<Postgres>, part: usize, id: &str) -> sqlx::Result<()> {
        const INSERT: &str = "\
INSERT INTO processed_messages (consumer, sender, key, fingerprint, expires_at)
VALUES ($1, $2, $3, $4, clock_timestamp() + $5 * interval '1 microsecond')
ON CONFLICT (consumer, sender, key) DO NOTHING";
        const CLAIM: &str = "\
WITH setting AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $5, true)
)
INSERT INTO processed_messages (consumer, sender, key, fingerprint, expires_at)
SELECT $1, $2, $3, $4, clock_timestamp() + $6 * interval '1 microsecond' FROM setting
ON CONFLICT (consumer, sender, key) DO NOTHING
RETURNING CASE WHEN set_config('lock_timeout', (SELECT before FROM setting), true) IS NOT NULL THEN txid_current() END";
        const BEGIN: &str = "BEGIN; DECLARE parts NO SCROLL CURSOR FOR SELECT 1";

        async fn effect(connection: &mut PgConnection, id: &str) -> sqlx::Result<()> {
            let effect = sqlx::query("INSERT INTO effects (id, amount) VALUES ($1, 1)").bind(id);
            effect.execute(connection).await.map(drop)
        }
        async fn claim(connection: &mut PgConnection, text: &'static str, id: &str) -> sqlx::Result<()> {
            let claim = sqlx::query(text).bind("parts").bind("").bind(id).bind(None::<&[u8]>);
            if text == INSERT {
                return claim.bind(7.0 * 86400e6).execute(connection).await.map(drop);
            }
            claim.bind("5000").bind(7.0 * 86400e6).fetch_one(connection).await.map(drop)
        }
        match part {
            0 | 1 => {
                let mut tx = pool.begin().await?;
                claim(&mut tx, [INSERT, CLAIM][part], id).await?;
                effect(&mut tx, id).await?;
                tx.commit().await
            }
            2 => {
                // What sqlx does not know of, it need not close.
                let mut connection = pool.acquire().await?;
                connection.execute(BEGIN).await?;
                claim(&mut connection, CLAIM, id).await?;
                effect(&mut connection, id).await?;
                connection.execute("CLOSE parts; COMMIT").await.map(drop)
            }
            _ => {
                let mut tx = pool.begin_with(BEGIN).await?;
                claim(&mut tx, CLAIM, id).await?;
                effect(&mut tx, id).await?;
                tx.execute("CLOSE parts; COMMIT; BEGIN").await.map(drop)
            }
        }
    }
}

impl Parts for MySql {
    const NAMES: &[&str] = &[
        "a table that says when a claim expires, and whose it is",
        "a claim that waits for a rival with a limit, in one request with START TRANSACTION",
        "the proof of the transaction: a savepoint, released with COMMIT in one request",
        "autocommit off until the end, so that nothing stays of a lost transaction",
        "ROLLBACK, with which sqlx closes the transaction that it counts",
    ];

    async fn process(pool: &Pool<MySql>, part: usize, id: &str) -> sqlx::Result<()> {
        const INSERT: &str = "\
INSERT IGNORE INTO processed_messages (consumer, sender, `key`, fingerprint, expires_at)
VALUES (?, ?, ?, NULL, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)";

        async fn effect(connection: &mut MySqlConnection, id: &str) -> sqlx::Result<()> {
            let effect = sqlx::query("INSERT INTO effects (id, amount) VALUES (?, 1)").bind(id);
            effect.execute(connection).await.map(drop)
        }
        /// After the statements that begin.
        fn claim(begin: &str, id: &str) -> AssertSqlSafe<String> {
            use std::fmt::Write as _;
            let hex = id.bytes().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02X}");
                text
            });
            AssertSqlSafe(format!(
                "{begin}; /*M! SET STATEMENT innodb_lock_wait_timeout = 5 FOR */ \
                 INSERT /*+ SET_VAR(innodb_lock_wait_timeout = 5) */ \
                 INTO processed_messages (consumer, sender, `key`, fingerprint, expires_at) VALUES (\
                 _ascii X'7061727473', _ascii X'', _ascii X'{hex}', NULL, UTC_TIMESTAMP(6) + INTERVAL 604800000000 MICROSECOND)"
            ))
        }
        /// What sqlx does not know of, it need not close.
        async fn raw(pool: &Pool<MySql>, begin: &str, end: &'static str, id: &str) -> sqlx::Result<()> {
            let mut connection = pool.acquire().await?;
            connection.execute(claim(begin, id)).await?;
            effect(&mut connection, id).await?;
            connection.execute(end).await.map(drop)
        }
        match part {
            0 => {
                let mut tx = pool.begin().await?;
                let claim = sqlx::query(INSERT).bind("parts").bind("").bind(id).bind(604_800_000_000_i64);
                claim.execute(&mut *tx).await?;
                effect(&mut tx, id).await?;
                tx.commit().await
            }
            1 => raw(pool, "START TRANSACTION", "COMMIT", id).await,
            2 => raw(pool, "START TRANSACTION; SAVEPOINT parts", "RELEASE SAVEPOINT parts; COMMIT", id).await,
            3 => {
                let end = "RELEASE SAVEPOINT parts; COMMIT; SET autocommit = 1";
                raw(pool, "SET autocommit = 0; SAVEPOINT parts", end, id).await
            }
            _ => {
                let mut tx = pool.begin_with(claim("SET autocommit = 0; SAVEPOINT parts", id)).await?;
                effect(&mut tx, id).await?;
                tx.execute("RELEASE SAVEPOINT parts; COMMIT; SET autocommit = 1").await.map(drop)
            }
        }
    }
}

impl Parts for Sqlite {
    const NAMES: &[&str] = &[
        "a table that says when a claim expires, and whose it is",
        "BEGIN IMMEDIATE, so that the lock is never refused in the middle",
        "one more visit to the connection's thread, for its hooks",
    ];

    async fn process(pool: &Pool<Sqlite>, part: usize, id: &str) -> sqlx::Result<()> {
        const CLAIM: &str = "\
INSERT INTO processed_messages (consumer, sender, key, fingerprint, expires_at)
VALUES (?1, ?2, ?3, NULL, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) + ?4)
ON CONFLICT (consumer, sender, key) DO NOTHING";

        async fn rest(connection: &mut SqliteConnection, id: &str) -> sqlx::Result<()> {
            let claim = sqlx::query(CLAIM).bind("parts").bind("").bind(id).bind(604_800_000_i64);
            claim.execute(&mut *connection).await?;
            let effect = sqlx::query("INSERT INTO effects (id, amount) VALUES (?, 1)").bind(id);
            effect.execute(connection).await.map(drop)
        }
        let mut connection = pool.acquire().await?;
        if part == 2 {
            drop(connection.lock_handle().await?);
        }
        let mut tx =
            if part == 0 { connection.begin().await? } else { connection.begin_with("BEGIN IMMEDIATE").await? };
        rest(&mut tx, id).await?;
        tx.commit().await
    }
}
