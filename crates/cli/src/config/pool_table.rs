//! The tables `[[pool]]` of a TOML file, as values of the flag `--pool`.

use toml::Spanned;
use toml::de::DeValue;

use crate::error::Error;
use crate::flags::escape_pool_text as escape;

type Cell<'t> = Spanned<DeValue<'t>>;

/// The value of `--pool` for each table, with the byte at which the table begins.
pub fn values(tables: &Cell<'_>) -> Result<Vec<(usize, String)>, (usize, Error)> {
    let unfit = |cell: &Cell<'_>| {
        let reason = "pool: write a table [[pool]] for each pool, with name and prefix".to_owned();
        (cell.span().start, Error::Illegal(reason))
    };
    let DeValue::Array(list) = tables.get_ref() else { return Err(unfit(tables)) };
    list.iter()
        .map(|table| {
            let DeValue::Table(fields) = table.get_ref() else { return Err(unfit(table)) };
            let (mut name, mut options) = (None, Vec::new());
            for (key, value) in fields {
                let wanted = |what: &str| (key.span().start, Error::Illegal(format!("{}: give {what}", key.get_ref())));
                match key.get_ref().as_ref() {
                    "name" => name = Some(text(value).ok_or_else(|| wanted("a string"))?),
                    "prefix" => {
                        let prefixes = prefixes(value).ok_or_else(|| wanted("a string or a list of strings"))?;
                        options.extend(prefixes.iter().map(|prefix| format!("prefix={}", escape(prefix))));
                    }
                    other => {
                        let value = scalar(value).ok_or_else(|| wanted("a string or a number"))?;
                        options.push(format!("{}={}", escape(other), escape(&value)));
                    }
                }
            }
            let start = table.span().start;
            let name = name.ok_or_else(|| (start, Error::Illegal("a pool needs a name".to_owned())))?;
            Ok((start, format!("{}:{}", escape(name), options.join(","))))
        })
        .collect()
}

fn text<'v>(value: &'v Cell<'_>) -> Option<&'v str> {
    match value.get_ref() {
        DeValue::String(text) => Some(text),
        _ => None,
    }
}

fn prefixes<'v>(value: &'v Cell<'_>) -> Option<Vec<&'v str>> {
    match value.get_ref() {
        DeValue::Array(list) => list.iter().map(text).collect(),
        _ => text(value).map(|prefix| vec![prefix]),
    }
}

/// The text of a string or a number.
pub fn scalar(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;

    #[test]
    fn each_table_is_a_pool() {
        let text = "memory-limit = 100\n[[pool]]\nname = \"users\"\nprefix = [\"users:\", \"a,b\"]\nmin = \"8m\"\n\
            weight = 2\n\n[[pool]]\nname = \"default\"\npolicy = \"lru\"\n";
        let pools = settings(&[("--config", text)], &[]).unwrap().pools;
        assert_eq!(pools.len(), 2);
        assert_eq!((pools[0].name.as_str(), pools[0].min_bytes, pools[0].weight), ("users", 8 << 20, 2));
        assert_eq!(pools[0].prefixes, [&b"users:"[..], b"a,b"]);
        let of_line = settings(&[("--config", text)], &["--pool", "x:prefix=x"]).unwrap().pools;
        assert_eq!((of_line.len(), of_line[0].name.as_str()), (1, "x"), "the command line wins");
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line, part) in [
            ("pool = \"users\"\n", 1, "[[pool]]"),
            ("\n[pool]\nname = \"a\"\n", 2, "[[pool]]"),
            ("[[pool]]\nprefix = \"x\"\n", 1, "needs a name"),
            ("[[pool]]\nname = 1\n", 2, "a string"),
            ("[[pool]]\nname = \"a\"\nprefix = [1]\n", 3, "a list of strings"),
            ("[[pool]]\nname = \"a\"\nsize = 1\n", 1, "size is unknown"),
        ] {
            let message = settings(&[("--config", text)], &[]).unwrap_err().to_string();
            assert!(message.contains(&format!("file0:{line}: ")) && message.contains(part), "{text}: {message}");
        }
    }
}
