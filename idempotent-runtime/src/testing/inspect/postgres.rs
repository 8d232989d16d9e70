//! PostgreSQL makes the digests itself, of rows as text.

use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Postgres};

use super::{Inspect, REFUSED, Table, quoted};
use crate::database::Statements;
use crate::testing::state::Contents;

/// A partition's rows are those of its table.
const TABLES: &str =
    "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_t%' ORDER BY 1, 2";

const NAME: &str = "idempotent_testing_refuses";

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Inspect for Postgres {
    async fn tables(connection: &mut PgConnection) -> Result<Vec<Table>, sqlx::Error> {
        let tables: Vec<(String, String)> = sqlx::query_as(TABLES).fetch_all(connection).await?;
        Ok(tables.into_iter().map(|(schema, name)| Table { schema: Some(schema), name }).collect())
    }

    async fn contents(connection: &mut PgConnection, table: &Table) -> Result<Contents, sqlx::Error> {
        // The whole row, under a name that no column has.
        let contents = format!(
            "SELECT count(*), coalesce(sum(('x' || left(md5(\"the row\"::text), 16))::bit(64)::bigint), 0)::text
FROM {} AS \"the row\"",
            table.quoted('"')
        );
        let (rows, digest) = sqlx::query_as(AssertSqlSafe(contents)).fetch_one(connection).await?;
        Ok(Contents { rows, digest })
    }

    async fn refuse(connection: &mut PgConnection, table: &Table) -> Result<(), sqlx::Error> {
        let refuse = format!(
            "CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN RAISE EXCEPTION '{REFUSED}'; END$$;
CREATE TRIGGER {NAME} BEFORE INSERT OR UPDATE OR DELETE ON {} FOR EACH STATEMENT EXECUTE FUNCTION {function}()",
            table.quoted('"'),
            function = function(table),
        );
        connection.execute(sqlx::raw_sql(AssertSqlSafe(refuse))).await.map(drop)
    }

    async fn allow(connection: &mut PgConnection, table: &Table) -> Result<(), sqlx::Error> {
        let allow = format!("DROP FUNCTION {}() CASCADE", function(table));
        connection.execute(sqlx::raw_sql(AssertSqlSafe(allow))).await.map(drop)
    }

    async fn claims(connection: &mut PgConnection, statements: &Statements) -> Result<Vec<[String; 3]>, sqlx::Error> {
        let claims = format!("SELECT consumer::text, sender::text, key::text FROM {}", statements.table.quoted('"'));
        let claims: Vec<(String, String, String)> = sqlx::query_as(AssertSqlSafe(claims)).fetch_all(connection).await?;
        Ok(claims.into_iter().map(<[String; 3]>::from).collect())
    }

    async fn age(connection: &mut PgConnection, statements: &Statements) -> Result<(), sqlx::Error> {
        let age = format!("UPDATE {} SET expires_at = now() - interval '1 year'", statements.table.quoted('"'));
        sqlx::query(AssertSqlSafe(age)).execute(connection).await.map(drop)
    }
}

fn function(table: &Table) -> String {
    match &table.schema {
        Some(schema) => format!("{}.{NAME}", quoted(schema, '"')),
        None => NAME.to_owned(),
    }
}
