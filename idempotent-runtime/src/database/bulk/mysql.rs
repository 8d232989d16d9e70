//! MySQL and MariaDB: rows as literals, in requests of bounded length. Which of them were inserted is told by a mark: with
//! `CLIENT_FOUND_ROWS`, which sqlx sets, no count tells inserted rows from others. MariaDB returns it with the INSERT
//! (<https://mariadb.com/kb/en/insertreturning/>), in a comment that MySQL skips; from MySQL it is read in a second
//! request, which the tests, on MariaDB, do not reach.

use std::borrow::Cow;
use std::fmt::Write as _;

use sqlx::{AssertSqlSafe, Executor as _, MySql, MySqlConnection, Row as _};

use super::super::Admission;
use super::super::mysql::{ER_DATA_OUT_OF_RANGE, ascii, moment, number, waiting};
use super::{Bulk, Claimed, indexes, numbers};
use crate::batch::Row;

/// Far below `max_allowed_packet`, whose default is 16 MiB; the reply is as long at most.
const LONGEST_REQUEST: usize = 1024 * 1024;

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Bulk for MySql {
    async fn claim_all(
        connection: &mut MySqlConnection,
        admission: Admission<'_>,
        consumer: &str,
        claims: &[(Row<'_>, Option<i64>)],
    ) -> Result<Claimed, sqlx::Error> {
        let mark = format!("X'{:016X}'", fastrand::u64(..));
        let consumer = literal(consumer);
        let relative = format!("UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND", admission.retention.as_micros());
        let mut claimed = Vec::new();
        for (start, chunk) in chunks(claims, |(row, _)| row.sender.len() + row.name.len()) {
            let mut values = String::new();
            for (index, (row, expires)) in chunk.iter().enumerate() {
                let expires = expires.map_or(Cow::Borrowed(&*relative), |at| Cow::Owned(moment(at)));
                values.push_str(if index == 0 { "(" } else { ", (" });
                values.push_str(&consumer);
                values.push_str(", ");
                ascii(&mut values, row.sender);
                ascii(&mut values, row.name);
                let _ = write!(values, "{mark}, {expires})");
            }
            // The row that is there stays as it is, and is locked.
            let request = admission.statements.fill_text(&format!(
                "{}INTO {{table}} (consumer, sender, `key`, batch, expires_at) VALUES {values} \
                 ON DUPLICATE KEY UPDATE consumer = VALUES(consumer) /*M!100500 RETURNING batch <=> {mark} */",
                waiting(admission.wait(), "INSERT"),
            ));
            let returned = sqlx::raw_sql(AssertSqlSafe(request)).fetch_all(&mut *connection).await?;
            if returned.len() == chunk.len() {
                // In the order of the values.
                for (index, row) in returned.iter().enumerate() {
                    if row.try_get::<bool, _>(0)? {
                        claimed.push(start + index);
                    }
                }
                continue;
            }
            let request = admission.statements.fill_text(&format!(
                "SELECT sender, `key` FROM {{table}} \
                 WHERE consumer = {consumer} AND batch = {mark} AND (sender, `key`) IN ({})",
                pairs(chunk.iter().map(|(row, _)| row)),
            ));
            let mut found = Vec::new();
            for row in sqlx::raw_sql(AssertSqlSafe(request)).fetch_all(&mut *connection).await? {
                found.push((row.try_get(0)?, row.try_get(1)?));
            }
            claimed.extend(
                indexes(chunk.iter().map(|(row, _)| *row), found.into_iter()).iter().map(|index| start + index),
            );
        }
        Ok(Claimed { indexes: claimed, transaction: None })
    }

    async fn now(connection: &mut MySqlConnection) -> Result<i64, sqlx::Error> {
        let now = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
        sqlx::raw_sql(now).fetch_one(connection).await?.try_get(0)
    }

    async fn positions(
        connection: &mut MySqlConnection,
        admission: Admission<'_>,
        consumer: &str,
        entities: &[Row<'_>],
    ) -> Result<Vec<Option<i64>>, sqlx::Error> {
        let mut found = Vec::new();
        for (_, chunk) in chunks(entities, |row| row.sender.len() + row.name.len()) {
            let request = admission.statements.fill_text(&format!(
                "{}sender, entity, number FROM {{positions}} WHERE consumer = {} AND (sender, entity) IN ({}) FOR UPDATE",
                waiting(admission.wait(), "SELECT"),
                literal(consumer),
                pairs(chunk.iter()),
            ));
            for row in sqlx::raw_sql(AssertSqlSafe(request)).fetch_all(&mut *connection).await? {
                found.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
            }
        }
        Ok(numbers(entities, found))
    }

    async fn advance_all(
        connection: &mut MySqlConnection,
        admission: Admission<'_>,
        consumer: &str,
        entities: &[(Row<'_>, i64)],
    ) -> Result<bool, sqlx::Error> {
        for (_, chunk) in chunks(entities, |(row, _)| row.sender.len() + row.name.len()) {
            let mut values = String::new();
            for (index, (row, number)) in chunk.iter().enumerate() {
                values.push_str(if index == 0 { "" } else { "), (" });
                for text in [consumer, row.sender, row.name] {
                    ascii(&mut values, text);
                }
                let _ = write!(values, "{number}, UTC_TIMESTAMP(6)");
            }
            let statement = admission.statements.advance.as_str().replace('?', &values);
            let request = format!("{}{statement}", waiting(admission.wait(), "INSERT"));
            match connection.execute(AssertSqlSafe(request)).await {
                Ok(_) => {}
                Err(error) if number(&error) == Some(ER_DATA_OUT_OF_RANGE) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    async fn forget_all(
        connection: &mut MySqlConnection,
        admission: Admission<'_>,
        consumer: &str,
        claims: &[Row<'_>],
    ) -> Result<(), sqlx::Error> {
        for (_, chunk) in chunks(claims, |row| row.sender.len() + row.name.len()) {
            let request = admission.statements.fill_text(&format!(
                "DELETE FROM {{table}} WHERE consumer = {} AND (sender, `key`) IN ({})",
                literal(consumer),
                pairs(chunk.iter()),
            ));
            connection.execute(AssertSqlSafe(request)).await?;
        }
        Ok(())
    }
}

/// `_ascii X'61'`
fn literal(text: &str) -> String {
    let mut literal = String::new();
    ascii(&mut literal, text);
    literal.truncate(literal.len() - ", ".len());
    literal
}

fn pairs<'a>(rows: impl Iterator<Item = &'a Row<'a>>) -> String {
    let mut pairs = String::new();
    for (index, row) in rows.enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(pairs, "{comma}({}, {})", literal(row.sender), literal(row.name));
    }
    pairs
}

/// As many items as fit into a request, each in hexadecimal digits, with the index of the first.
fn chunks<T>(items: &[T], length: impl Fn(&T) -> usize) -> impl Iterator<Item = (usize, &[T])> {
    let mut rest = items;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fit = rest.iter().take_while(|item| {
            bytes += 4 * length(item) + 300;
            bytes <= LONGEST_REQUEST
        });
        let (chunk, left) = rest.split_at(fit.count().max(1).min(rest.len()));
        rest = left;
        (!chunk.is_empty()).then_some((items.len() - left.len() - chunk.len(), chunk))
    })
}
