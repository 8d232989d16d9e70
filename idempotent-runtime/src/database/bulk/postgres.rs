//! PostgreSQL: arrays, unnested in one statement whatever their length. Each sets `lock_timeout` and puts it back, as the
//! claim of one message does.

use sqlx::{PgConnection, Postgres};

use super::super::Admission;
use super::{Bulk, indexes, numbers};
use crate::batch::Row;

const CLAIM_ALL: &str = "\
WITH setting AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $6, true)
), claimed AS (
    INSERT INTO {table} (consumer, sender, key, expires_at)
    SELECT $1, sender, key, coalesce(timestamptz 'epoch' + expires * interval '1 microsecond',
                                     clock_timestamp() + $5 * interval '1 microsecond')
    FROM setting, unnest($2::text[], $3::text[], $4::float8[]) AS item (sender, key, expires)
    ON CONFLICT (consumer, sender, key) DO NOTHING
    RETURNING sender, key
)
SELECT sender, key, set_config('lock_timeout', before, true) FROM setting LEFT JOIN claimed ON true";

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
    ) -> Result<Vec<usize>, sqlx::Error> {
        let (senders, keys) = columns(claims.iter().map(|(row, _)| row));
        #[expect(clippy::cast_precision_loss, reason = "microseconds are exact until the year 2255")]
        let expires: Vec<Option<f64>> = claims.iter().map(|(_, expires)| expires.map(|micros| micros as f64)).collect();
        let insert = sqlx::query_as::<_, (Option<String>, Option<String>)>(admission.statements.fill(CLAIM_ALL))
            .persistent(admission.statements.named)
            .bind(consumer)
            .bind(senders)
            .bind(keys)
            .bind(expires)
            .bind(admission.retention.as_secs_f64() * 1e6)
            .bind(admission.wait_millis());
        let claimed = insert.fetch_all(connection).await?;
        let claimed = claimed.into_iter().filter_map(|(sender, key)| sender.zip(key));
        Ok(indexes(claims.iter().map(|(row, _)| *row), claimed))
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
