//! The tests' own statements, each time on a connection of their own.

use std::io::ErrorKind;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, PgConnection, Row as _, SqliteConnection};
use url::Url;

use crate::database::Kind;
use crate::server::Engine;

/// A statement that takes longer waits for something that will not happen. CREATE and DROP DATABASE write all that is not
/// written yet, and have taken over half a minute where others were busy with the disk.
const TIMEOUT: Duration = Duration::from_mins(3);

/// Runs a statement.
pub(crate) async fn execute(kind: Kind, admin: &Url, statement: &str) -> Result<(), sqlx::Error> {
    run(kind, admin, statement).await.map(drop)
}

/// The text in the first column of the first row.
pub(crate) async fn ask(kind: Kind, admin: &Url, question: &str) -> Result<String, sqlx::Error> {
    run(kind, admin, question).await?.into_iter().next().ok_or(sqlx::Error::RowNotFound)
}

/// Closes the connections to a database and drops it, in a thread of its own: destructors cannot await, and may run
/// inside a runtime.
pub(crate) fn drop_and_wait(engine: &'static Engine, admin: Url, name: &str) -> Result<(), String> {
    let (close, drop) = (engine.close.map(|close| close(name)), (engine.drop)(name));
    let dropping = async move {
        if let Some(close) = close {
            for statement in run(engine.kind, &admin, &close).await? {
                // It may have ended meanwhile.
                let _ = execute(engine.kind, &admin, &statement).await;
            }
        }
        execute(engine.kind, &admin, &drop).await
    };
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(dropping).map_err(|error| error.to_string())
    });
    thread.join().unwrap_or_else(|_| Err("panicked".to_owned()))
}

/// Runs a statement and gives the texts in the first column of its rows.
pub(crate) async fn run(kind: Kind, admin: &Url, statement: &str) -> Result<Vec<String>, sqlx::Error> {
    let statement = sqlx::raw_sql(AssertSqlSafe(statement)); // Safe: the tests' own text.
    let running = async {
        match kind {
            Kind::Postgres => {
                let mut connection = PgConnection::connect(admin.as_str()).await?;
                let rows = statement.fetch_all(&mut connection).await?;
                connection.close().await?;
                rows.iter().map(|row| row.try_get(0)).collect()
            }
            Kind::Mariadb => {
                let mut connection = MySqlConnection::connect(admin.as_str()).await?;
                let rows = statement.fetch_all(&mut connection).await?;
                connection.close().await?;
                rows.iter().map(|row| row.try_get(0)).collect()
            }
            Kind::Sqlite => {
                let mut connection = SqliteConnection::connect(admin.as_str()).await?;
                let rows = statement.fetch_all(&mut connection).await?;
                connection.close().await?;
                rows.iter().map(|row| row.try_get(0)).collect()
            }
        }
    };
    let no_answer = || std::io::Error::new(ErrorKind::TimedOut, format!("no answer in {TIMEOUT:?}"));
    tokio::time::timeout(TIMEOUT, running).await.unwrap_or_else(|_| Err(no_answer().into()))
}
