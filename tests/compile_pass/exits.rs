//! M9: every way out of the body ends the transaction once.

use idempotent_runtime::{Outcome, idempotent};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{SqlitePool, SqliteTransaction};

async fn effect(tx: &mut SqliteTransaction<'_>) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO effect DEFAULT VALUES").execute(&mut **tx).await?;
    Ok(())
}

#[idempotent(key = "{id}")]
async fn return_in_a_loop(tx: &mut SqliteTransaction<'_>, id: u8) -> sqlx::Result<u8> {
    effect(tx).await?;
    for number in 0.. {
        if number == id {
            return Ok(number);
        }
    }
    unreachable!()
}

#[idempotent(key = "{id}")]
async fn question_mark(tx: &mut SqliteTransaction<'_>, id: u8) -> sqlx::Result<u8> {
    effect(tx).await?;
    {
        let _ = loop {
            match id {
                0 => break 1,
                _ => Err(sqlx::Error::RowNotFound)?,
            }
        };
    }
    Ok(id)
}

#[idempotent(key = "{id}")]
async fn labelled_break(tx: &mut SqliteTransaction<'_>, id: u8) -> sqlx::Result<u8> {
    effect(tx).await?;
    let value = 'label: {
        if id > 0 {
            break 'label id;
        }
        0
    };
    Ok(value)
}

#[idempotent(key = "{id}")]
async fn early_error(tx: &mut SqliteTransaction<'_>, id: u8) -> sqlx::Result<u8> {
    effect(tx).await?;
    if id > 0 {
        return Err(sqlx::Error::RowNotFound);
    }
    Ok(id)
}

#[idempotent(key = "{id}")]
async fn diverges(tx: &mut SqliteTransaction<'_>, id: u8) -> sqlx::Result<u8> {
    effect(tx).await?;
    loop {
        if id > 0 {
            return Ok(id);
        }
    }
}

async fn effects(pool: &SqlitePool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM effect").fetch_one(pool).await.unwrap()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
    idempotent_runtime::migrate(&pool).await.unwrap();
    sqlx::query("CREATE TABLE effect (id INTEGER PRIMARY KEY)").execute(&pool).await.unwrap();
    for _ in 0..2 {
        return_in_a_loop(&pool, 3).await.unwrap();
    }
    assert_eq!(effects(&pool).await, 1);
    for _ in 0..2 {
        assert!(question_mark(&pool, 3).await.is_err());
        assert!(early_error(&pool, 3).await.is_err());
    }
    assert_eq!(effects(&pool).await, 1);
    for _ in 0..2 {
        labelled_break(&pool, 3).await.unwrap();
        diverges(&pool, 3).await.unwrap();
    }
    assert_eq!(effects(&pool).await, 3);
    assert!(matches!(labelled_break(&pool, 4).await, Ok(Outcome::Processed(4))));
}
