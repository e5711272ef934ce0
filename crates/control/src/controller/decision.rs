//! Decisions of the controller, and their reasons in plain words.

use std::fmt;

/// Unit of the value that a division maximizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GainUnit {
    #[default]
    Hits,
    /// The bytes that hits serve.
    Bytes,
}

impl GainUnit {
    /// `1,900`, `1.5 MiB`.
    fn amount(self, number: f64) -> String {
        match self {
            Self::Hits => count(number),
            Self::Bytes if number < 0.0 => format!("-{}", size(-number as u64)),
            Self::Bytes => size(number as u64),
        }
    }

    /// The word that follows an amount, or an amount and `more`.
    fn of(self) -> &'static str {
        match self {
            Self::Hits => "hits",
            Self::Bytes => "of hits",
        }
    }
}

/// Memory that passes from one pool to another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// `None`: from memory that no pool had.
    pub from: Option<String>,
    pub to: String,
    pub bytes: u64,
    /// Predicted hits a second that the receiver gains and the giver loses.
    pub gained_hits_per_second: f64,
    pub lost_hits_per_second: f64,
    /// As those, where the division maximizes the bytes that hits serve.
    pub gained_bytes_per_second: Option<f64>,
    pub lost_bytes_per_second: Option<f64>,
    /// Where the best division leaves the receiver inside a cliff of its curve: the memory at which the cliff ends.
    pub cliff_to_bytes: Option<u64>,
}

/// A decision about the memory of all pools.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Keep(KeepReason),
    /// New budgets in the order of the pools.
    Move {
        moves: Vec<Move>,
        bytes: Vec<u64>,
    },
    /// Moves that return the memory of a trial, with the predicted and the measured change a second.
    Undo {
        moves: Vec<Move>,
        bytes: Vec<u64>,
        predicted: f64,
        measured: f64,
        unit: GainUnit,
    },
}

impl Decision {
    /// The new budgets, where there are any.
    pub fn bytes(&self) -> Option<&[u64]> {
        match self {
            Self::Keep(_) => None,
            Self::Move { bytes, .. } | Self::Undo { bytes, .. } => Some(bytes),
        }
    }

    /// The moves, none where the budgets stay.
    pub fn moves(&self) -> &[Move] {
        match self {
            Self::Keep(_) => &[],
            Self::Move { moves, .. } | Self::Undo { moves, .. } => moves,
        }
    }
}

/// A pool that the best division leaves inside a cliff of its curve.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolInCliff {
    pub pool: String,
    /// Memory at which the cliff ends.
    pub to_bytes: u64,
}

/// Why the budgets stay as they are.
#[derive(Clone, Debug, PartialEq)]
pub enum KeepReason {
    /// No pool has a curve yet.
    NothingSeen,
    /// The best division would gain no more than the minimum gain, weighted and per second.
    LittleGain { gain: f64, wanted: f64, unit: GainUnit, in_cliff: Vec<PoolInCliff> },
    /// The best division would gain no more than the error of its prediction.
    Uncertain { gain: f64, uncertainty: f64, unit: GainUnit, in_cliff: Vec<PoolInCliff> },
    /// Receivers of earlier moves are filling.
    Filling,
    /// The hit ratios of the present division are being measured, after earlier moves or at the start.
    Measuring,
    /// The cache as a whole is shrinking.
    Shrinking,
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingSeen => write!(f, "too few accesses were sampled"),
            Self::LittleGain { gain, wanted, unit, in_cliff } => {
                let (gain, wanted, of) = (unit.amount(*gain), unit.amount(*wanted), unit.of());
                write!(f, "the best division would gain {gain} {of} a second, and {wanted} are worth a move")?;
                in_cliff.iter().try_for_each(|pool| write!(f, "; {pool}"))
            }
            Self::Uncertain { gain, uncertainty, unit, in_cliff } => {
                let (gain, uncertainty, of) = (unit.amount(*gain), unit.amount(*uncertainty), unit.of());
                write!(f, "the best division would gain {gain} {of} a second, give or take {uncertainty}")?;
                in_cliff.iter().try_for_each(|pool| write!(f, "; {pool}"))
            }
            Self::Filling => write!(f, "pools that grew are filling"),
            Self::Measuring => write!(f, "the hit ratios of the present division are being measured"),
            Self::Shrinking => write!(f, "the cache is shrinking"),
        }
    }
}

impl fmt::Display for PoolInCliff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "most of what {} can gain comes at {}", self.pool, size(self.to_bytes))
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (to, bytes) = (&self.to, size(self.bytes));
        let from = self.from.as_deref().unwrap_or("unused memory");
        let (unit, gained, lost) = match (self.gained_bytes_per_second, self.lost_bytes_per_second) {
            (Some(gained), Some(lost)) => (GainUnit::Bytes, gained, lost),
            _ => (GainUnit::Hits, self.gained_hits_per_second, self.lost_hits_per_second),
        };
        let (gained, lost, of) = (unit.amount(gained), unit.amount(lost), unit.of());
        write!(f, "{to} +{bytes} from {from}: {gained} more {of} a second, {lost} fewer")?;
        match self.cliff_to_bytes {
            None => Ok(()),
            Some(to_bytes) => write!(f, ", and {}", PoolInCliff { pool: to.clone(), to_bytes }),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Keep(reason) = self {
            return write!(f, "nothing moves: {reason}");
        }
        let moves: Vec<String> = self.moves().iter().map(Move::to_string).collect();
        if let Self::Undo { predicted, measured, unit, .. } = self {
            let (predicted, measured, of) = (unit.amount(*predicted), unit.amount(*measured), unit.of());
            write!(f, "undo, {predicted} more {of} a second were predicted and {measured} measured: ")?;
        }
        write!(f, "{}", moves.join("; "))
    }
}

/// `0.004`, `0.4`, `12`, `1,900`: at least one digit that is not 0, down to a millionth.
fn count(number: f64) -> String {
    if number.abs() < 1e-6 {
        return "0.0".to_owned();
    }
    if number.abs() < 10.0 {
        let places = (-number.abs().log10()).ceil().max(1.0) as usize;
        return format!("{number:.places$}");
    }
    let digits = format!("{:.0}", number.abs());
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if number < 0.0 { format!("-{grouped}") } else { grouped }
}

/// `512 KiB`, `1.5 MiB`, `64 MiB`.
pub(super) fn size(bytes: u64) -> String {
    let (number, unit) = match bytes {
        ..0x10_0000 => (bytes as f64 / 1024.0, "KiB"),
        0x10_0000..0x4000_0000 => (bytes as f64 / f64::from(1 << 20), "MiB"),
        _ => (bytes as f64 / f64::from(1 << 30), "GiB"),
    };
    if number < 10.0 && number.fract() > 0.05 { format!("{number:.1} {unit}") } else { format!("{number:.0} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_names_pools_bytes_and_hits() {
        let step = |from: Option<&str>, bytes, gained, lost| Move {
            from: from.map(str::to_owned),
            to: "users".to_owned(),
            bytes,
            gained_hits_per_second: gained,
            lost_hits_per_second: lost,
            gained_bytes_per_second: None,
            lost_bytes_per_second: None,
            cliff_to_bytes: None,
        };
        let inside = Move { cliff_to_bytes: Some(200 << 20), ..step(Some("feed"), 64 << 20, 2.0, 1.0) };
        assert!(
            inside.to_string().ends_with("1.0 fewer, and most of what users can gain comes at 200 MiB"),
            "{inside}"
        );
        let moves = vec![step(Some("feed"), 64 << 20, 1900.4, 100.0), step(None, 3 << 19, 0.44, 0.0)];
        let text = Decision::Move { moves: moves.clone(), bytes: Vec::new() }.to_string();
        assert_eq!(
            text,
            "users +64 MiB from feed: 1,900 more hits a second, 100 fewer; \
             users +1.5 MiB from unused memory: 0.4 more hits a second, 0.0 fewer"
        );
        let rare = step(Some("feed"), 64 << 20, 0.0042, 0.000_000_1).to_string();
        assert!(rare.ends_with("0.004 more hits a second, 0.0 fewer"), "{rare}");
        let undo = Decision::Undo {
            moves: moves[..1].to_vec(),
            bytes: Vec::new(),
            predicted: 1800.0,
            measured: -12.0,
            unit: GainUnit::Hits,
        };
        assert!(undo.to_string().starts_with("undo, 1,800 more hits a second were predicted and -12 measured: users"));
        let of_bytes = Move {
            gained_bytes_per_second: Some(1.5 * f64::from(1 << 20)),
            lost_bytes_per_second: Some(0.0),
            ..step(Some("feed"), 64 << 20, 10.0, 100.0)
        };
        assert_eq!(of_bytes.to_string(), "users +64 MiB from feed: 1.5 MiB more of hits a second, 0 KiB fewer");
        let (gain, wanted, in_cliff) = (2048.0, 4096.0, Vec::new());
        let reason = KeepReason::LittleGain { gain, wanted, unit: GainUnit::Bytes, in_cliff };
        assert!(reason.to_string().ends_with("gain 2 KiB of hits a second, and 4 KiB are worth a move"), "{reason}");
        assert_eq!(GainUnit::Bytes.amount(-1024.0), "-1 KiB");
        assert_eq!([1234567.0, 999.6, 0.04].map(count), ["1,234,567", "1,000", "0.04"]);
    }
}
