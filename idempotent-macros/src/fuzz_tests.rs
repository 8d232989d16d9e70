//! Whatever stands in the attribute and below it, an expansion ends without a panic (M13), and a template that is accepted
//! holds what was written.
//!
//! From a fixed seed. `FUZZ_SECONDS=60` expands for longer, `IDEMPOTENT_TEST_LONG=1` reads ten million templates.

use std::time::{Duration, Instant};

use fastrand::Rng;
use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

use crate::template::Template;

const SEED: u64 = 0x1DE3_907E_2417_5EED;

const ARGUMENTS: [&str; 6] = [
    r#"key = "{event.id}""#,
    r#"key = "{a.b.0}:{self.id()}/{r#type.r#fn}{{}}", consumer = "billing.grant", sender = "{event.source}""#,
    r#"key = "{event.id}", retention = "30d", horizon = "3d", missing = "process", crate = facade::rt::<u8>"#,
    r##"key = r#"{größe}"#, retention = '7', horizon = 3.5, missing = b"x", sender = c"x""##,
    "key(\"x\"), retention, = , crate = $crate::x, , ,",
    "",
];

const ITEMS: [&str; 9] = [
    "/// Doc.\n#[instrument(skip(tx))] pub async fn f<'t, T: X<'t>>(tx: &'t mut PgTransaction<'t>, event: &Event) -> sqlx::Result<i64> where T: Y { #![allow(x)] if event. }",
    "async fn f(&self, #[tx] _: &mut Tx<'_>, Event { id, mut cents, r#type: ref kind, .. }: Event, claim: &Claim) -> Result<impl Display, E> { Ok(1) }",
    "pub(crate) async fn r#type(mut self: Arc<Self>, #[cfg(x)] #[allow(y)] (a | b): (u8, u8), &mut x @ [.., y]: &[u8]) -> Answer { 'a: loop { break 'a } }",
    "unsafe extern \"C\" fn f(x: *const u8, ...) -> ! { }",
    "const fn f<const N: usize>(tx: Transaction<'_, DB>, tx: &Transaction<'_>) -> (Result<u8>, u8) {}",
    "default async fn f(tx: &mut <A as B>::Transaction, pool: &PgPool) -> impl Future<Output = u8>;",
    "struct Id<'a, T: ?Sized>(#[key_part(\"x\")] &'a T) where T: 'a;",
    "#[key_part(crate = a::b)] enum Kind { #[key_part(\"a\")] A, #[key_part(\"\")] B(u8), C = 3 }",
    "impl X { async fn f() {} }",
];

const TEXTS: [&str; 16] = [
    "{",
    "}",
    "{{",
    "}}",
    "{event.id}",
    "{event.",
    "é",
    "%",
    " ",
    "{r#",
    "r#self}",
    "{a.0.00.1}",
    "{½.²}",
    "::new_v4()",
    "30d",
    "\0\n",
];

/// Correct input, broken at random.
struct Random(Rng);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0.usize(..limit.max(1))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Breaks a few tokens.
    fn mutate(&mut self, tokens: TokenStream) -> TokenStream {
        let mut tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for _ in 0..self.below(4) {
            let at = self.below(tokens.len() + 1);
            match self.below(7) {
                0 if at < tokens.len() => drop(tokens.remove(at)),
                1 if at < tokens.len() => tokens.insert(at, tokens[at].clone()),
                2 if at + 1 < tokens.len() => tokens.swap(at, at + 1),
                3 => tokens.truncate(at),
                4 if at < tokens.len() => {
                    let wrapped = TokenStream::from(tokens.remove(at));
                    tokens.insert(at, Group::new(self.delimiter(), wrapped).into());
                }
                5 if at < tokens.len() => tokens[at] = self.token(),
                _ => tokens.insert(at, self.token()),
            }
        }
        let inside = |random: &mut Self, token| match token {
            TokenTree::Group(group) if random.below(3) > 0 => {
                TokenTree::Group(Group::new(group.delimiter(), random.mutate(group.stream())))
            }
            TokenTree::Literal(literal) if literal.to_string().starts_with('"') && random.below(3) == 0 => {
                let text: String = (0..random.below(5)).map(|_| random.pick(&TEXTS)).collect();
                TokenTree::Literal(Literal::string(&text))
            }
            other => other,
        };
        tokens.into_iter().map(|token| inside(self, token)).collect()
    }

    fn token(&mut self) -> TokenTree {
        const WORDS: [&str; 20] = [
            "fn",
            "async",
            "self",
            "mut",
            "tx",
            "event",
            "key",
            "Claim",
            "Result",
            "impl",
            "dyn",
            "where",
            "crate",
            "cfg",
            "Transaction",
            "PgPool",
            "ref",
            "for",
            "_",
            "type",
        ];
        match self.below(4) {
            0 => Ident::new(self.pick(&WORDS), Span::call_site()).into(),
            1 => {
                let spacing = if self.below(2) == 0 { Spacing::Alone } else { Spacing::Joint };
                Punct::new(self.pick(&['#', '!', '&', ':', ',', ';', '.', '<', '>', '=', '|', '\'', '-', '@']), spacing)
                    .into()
            }
            2 => Literal::string(self.pick(&TEXTS)).into(),
            _ => Group::new(self.delimiter(), TokenStream::new()).into(),
        }
    }

    fn delimiter(&mut self) -> Delimiter {
        self.pick(&[Delimiter::Parenthesis, Delimiter::Brace, Delimiter::Bracket, Delimiter::None])
    }
}

fn tokens(text: &str) -> TokenStream {
    // `$crate` is no token outside a macro.
    text.replace('$', "").parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn no_input_makes_an_expansion_panic() {
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random(Rng::with_seed(SEED));
    let mut rounds = 0_u32;
    while Instant::now() < end {
        rounds += 1;
        let (arguments, item) = (tokens(random.pick(&ARGUMENTS)), tokens(random.pick(&ITEMS)));
        let (arguments, item) = (random.mutate(arguments), random.mutate(item));
        let shown = format!("round {rounds}: #[idempotent({arguments})] {item}");
        let expanded = std::panic::catch_unwind(move || {
            let _ = crate::attribute::idempotent(arguments, item.clone(), Some("fuzz")).to_string();
            let _ = crate::key_part::derive(item).to_string();
        });
        assert!(expanded.is_ok(), "{shown}");
    }
    println!("{rounds} expansions of broken input in {seconds} s");
    assert!(rounds > 100, "{rounds}");
}

/// What templates are made of, and what they should not be made of.
const PIECES: [&str; 32] = [
    "{event.id}",
    "{a}",
    "{self.x}",
    "{r#type.0}",
    "{a.b()}",
    "{größe}",
    "{{",
    "}}",
    ":",
    "/",
    "-v",
    "order-",
    "_",
    "x",
    "0",
    "\"",
    "'",
    "{",
    "}",
    "%",
    " ",
    "é",
    "\0",
    "\u{7f}",
    "\u{202e}",
    "r#",
    ".",
    "..",
    "()",
    "::<X>",
    "{a:?}",
    "{ }",
];

#[test]
fn an_accepted_template_holds_what_was_written_and_a_refused_one_says_why() {
    let rounds = if std::env::var_os("IDEMPOTENT_TEST_LONG").is_some() { 10_000_000 } else { 20_000 };
    let mut random = Random(Rng::with_seed(SEED));
    let (mut source, mut accepted) = (String::new(), 0);
    for _ in 0..rounds {
        source.clear();
        // Half of them of good pieces alone, so that many are accepted.
        let pieces = if random.below(2) == 0 { &PIECES[..17] } else { &PIECES[..] };
        for _ in 0..random.below(8) {
            source.push_str(random.pick(pieces));
        }
        match Template::parse(&source) {
            Ok(template) => {
                accepted += 1;
                let written = |literal: &String| literal.replace('{', "{{").replace('}', "}}");
                let mut again = written(&template.literals[0]);
                assert_eq!(template.literals.len(), template.parts.len() + 1, "{source:?}");
                for (index, (part, literal)) in template.parts.iter().zip(&template.literals[1..]).enumerate() {
                    again += &["{", &part.text, "}", &written(literal)].concat();
                    let separates = literal.starts_with(|char: char| char.is_ascii_punctuation());
                    assert!(separates || index + 1 == template.parts.len(), "{source:?}");
                }
                assert_eq!(again, source);
                let stored = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
                assert!(template.literals.iter().all(|literal| literal.bytes().all(stored)), "{source:?}");
            }
            Err(problems) => {
                assert!(!problems.is_empty() && problems.iter().all(|problem| !problem.is_empty()), "{source:?}");
            }
        }
    }
    println!("{rounds} templates read, {accepted} of them accepted");
    assert!(accepted > rounds / 4 && accepted < rounds / 4 * 3, "{accepted}");
}
