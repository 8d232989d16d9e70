//! PostgreSQL: arrays, unnested in one statement whatever their length. Each sets `lock_timeout` and puts it back, as the
//! claim of one message does.

use sqlx::{PgConnection, Postgres};

use super::super::Admission;
use super::{Bulk, Claimed, indexes, numbers};
use crate::batch::Row;

/// One row: which were inserted, unless all were. `items` are the arrays, as columns; `expires` is when one expires, and
/// `setting.expires` what the retention makes of it.
macro_rules! claim_all {
    ($items:literal, $expires:literal) => {
        concat!(
            "\
WITH setting AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $5, true),
           clock_timestamp() + $4 * interval '1 microsecond' AS expires
), claimed AS (
    INSERT INTO {table} (consumer, sender, key, expires_at)
    SELECT $1, sender, key, ",
            $expires,
            " FROM setting, ",
            $items,
            "
    ON CONFLICT (consumer, sender, key) DO NOTHING
    RETURNING sender, key
), found AS (
    SELECT count(*) AS count, array_agg(sender) AS senders, array_agg(key) AS keys FROM claimed
)
SELECT txid_current(), count,
       CASE WHEN count < cardinality($3) THEN senders END, CASE WHEN count < cardinality($3) THEN keys END,
       set_config('lock_timeout', before, true)
FROM setting, found"
        )
    };
}

const CLAIM_ALL: &str = claim_all!("unnest($2::text[], $3::text[]) AS item (sender, key)", "setting.expires");

const CLAIM_ALL_DATED: &str = claim_all!(
    "unnest($2::text[], $3::text[], $6::float8[]) AS item (sender, key, expires)",
    "coalesce(timestamptz 'epoch' + item.expires * interval '1 microsecond', setting.expires)"
);

/// A lock is taken as each row comes out of the sort.
const POSITIONS: &str = "\
WITH setting AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $4, true)
), locked AS (
    SELECT sender, entity, number FROM {positions}, setting
    WHERE consumer = $1 AND (sender, entity) IN (SELECT * FROM unnest($2::text[], $3::text[]))
    ORDER BY sender, entity
    FOR UPDATE OF {positions}
)
SELECT sender, entity, number, set_config('lock_timeout', before, true) FROM setting LEFT JOIN locked ON true";

const ADVANCE_ALL: &str = "\
WITH setting AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $5, true)
), advanced AS (
    INSERT INTO {positions} AS stored (consumer, sender, entity, number, updated_at)
    SELECT $1, sender, entity, number, clock_timestamp()
    FROM setting, unnest($2::text[], $3::text[], $4::bigint[]) AS item (sender, entity, number)
    ON CONFLICT (consumer, sender, entity) DO UPDATE SET number = excluded.number, updated_at = excluded.updated_at
    WHERE stored.number < excluded.number
    RETURNING 1 AS one
), counted AS (
    SELECT count(*) AS count FROM advanced
)
SELECT count, set_config('lock_timeout', before, true) FROM setting, counted";

const FORGET_ALL: &str = "\
DELETE FROM {table} WHERE consumer = $1 AND (sender, key) IN (SELECT * FROM unnest($2::text[], $3::text[]))";

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Bulk for Postgres {
    async fn claim_all(
        connection: &mut PgConnection,
        admission: Admission<'_>,
        consumer: &str,
        claims: &[(Row<'_>, Option<i64>)],
    ) -> Result<Claimed, sqlx::Error> {
        type Found = (i64, i64, Option<Vec<String>>, Option<Vec<String>>);
        let (senders, keys) = columns(claims.iter().map(|(row, _)| row));
        let dated = claims.iter().any(|(_, expires)| expires.is_some());
        let text = if dated { CLAIM_ALL_DATED } else { CLAIM_ALL };
        let mut insert = sqlx::query_as::<_, Found>(admission.statements.fill(text))
            .persistent(admission.statements.named)
            .bind(consumer)
            .bind(senders)
            .bind(keys)
            .bind(admission.retention.as_secs_f64() * 1e6)
            .bind(admission.wait_millis());
        if dated {
            #[expect(clippy::cast_precision_loss, reason = "microseconds are exact until the year 2255")]
            let expires: Vec<Option<f64>> = claims.iter().map(|(_, expires)| expires.map(|at| at as f64)).collect();
            insert = insert.bind(expires);
        }
        let (transaction, count, senders, keys) = insert.fetch_one(connection).await?;
        let indexes = if usize::try_from(count) == Ok(claims.len()) {
            (0..claims.len()).collect()
        } else {
            let found = senders.unwrap_or_default().into_iter().zip(keys.unwrap_or_default());
            indexes(claims.iter().map(|(row, _)| *row), found)
        };
        Ok(Claimed { indexes, transaction: Some(transaction) })
    }

    async fn now(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        sqlx::query_scalar(now).persistent(false).fetch_one(connection).await
    }

    async fn positions(
        connection: &mut PgConnection,
        admission: Admission<'_>,
        consumer: &str,
        entities: &[Row<'_>],
    ) -> Result<Vec<Option<i64>>, sqlx::Error> {
        let (senders, names) = columns(entities.iter());
        let lock =
            sqlx::query_as::<_, (Option<String>, Option<String>, Option<i64>)>(admission.statements.fill(POSITIONS));
        let lock = lock
            .persistent(admission.statements.named)
            .bind(consumer)
            .bind(senders)
            .bind(names)
            .bind(admission.wait_millis());
        let locked = lock.fetch_all(connection).await?.into_iter();
        let locked = locked.filter_map(|(sender, entity, number)| Some((sender?, entity?, number?))).collect();
        Ok(numbers(entities, locked))
    }

    async fn advance_all(
        connection: &mut PgConnection,
        admission: Admission<'_>,
        consumer: &str,
        entities: &[(Row<'_>, i64)],
    ) -> Result<bool, sqlx::Error> {
        let (senders, names) = columns(entities.iter().map(|(row, _)| row));
        let numbers: Vec<i64> = entities.iter().map(|(_, number)| *number).collect();
        let advance = sqlx::query_scalar::<_, i64>(admission.statements.fill(ADVANCE_ALL))
            .persistent(admission.statements.named)
            .bind(consumer)
            .bind(senders)
            .bind(names)
            .bind(numbers)
            .bind(admission.wait_millis());
        let advanced = advance.fetch_one(connection).await?;
        Ok(usize::try_from(advanced) == Ok(entities.len()))
    }

    async fn forget_all(
        connection: &mut PgConnection,
        admission: Admission<'_>,
        consumer: &str,
        claims: &[Row<'_>],
    ) -> Result<(), sqlx::Error> {
        let (senders, keys) = columns(claims.iter());
        let forget = sqlx::query(admission.statements.fill(FORGET_ALL))
            .persistent(admission.statements.named)
            .bind(consumer)
            .bind(senders)
            .bind(keys);
        forget.execute(connection).await.map(drop)
    }
}

fn columns<'a>(rows: impl Iterator<Item = &'a Row<'a>>) -> (Vec<&'a str>, Vec<&'a str>) {
    rows.map(|row| (row.sender, row.name)).unzip()
}
