//! The commands by their numbers. A quiet one is not answered when all goes as expected: a get that misses, anything
//! else that succeeds.

macro_rules! opcodes {
    ($($name:ident = $number:literal $(, quiet $quiet:literal)?;)*) => {
        /// A command of the protocol; the quiet form of a command is the same one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Opcode {
            $($name,)*
        }

        impl Opcode {
            /// The command with this number and whether it is the quiet form, or `None` if there is none.
            pub fn from_number(number: u8) -> Option<(Self, bool)> {
                match number {
                    $($number => Some((Self::$name, false)), $($quiet => Some((Self::$name, true)),)?)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    Get = 0x00, quiet 0x09;
    Set = 0x01, quiet 0x11;
    Add = 0x02, quiet 0x12;
    Replace = 0x03, quiet 0x13;
    Delete = 0x04, quiet 0x14;
    Increment = 0x05, quiet 0x15;
    Decrement = 0x06, quiet 0x16;
    Quit = 0x07, quiet 0x17;
    Flush = 0x08, quiet 0x18;
    Noop = 0x0A;
    Version = 0x0B;
    GetKey = 0x0C, quiet 0x0D;
    Append = 0x0E, quiet 0x19;
    Prepend = 0x0F, quiet 0x1A;
    Stat = 0x10;
    Touch = 0x1C;
    GetAndTouch = 0x1D, quiet 0x1E;
    SaslMechanisms = 0x20;
    SaslAuth = 0x21;
    SaslStep = 0x22;
    GetKeyAndTouch = 0x23, quiet 0x24;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_known_once() {
        let known: Vec<_> = (0..=u8::MAX).filter_map(Opcode::from_number).collect();
        assert_eq!(known.len(), 35);
        assert_eq!(known.iter().filter(|(_, quiet)| *quiet).count(), 14);
        for (at, one) in known.iter().enumerate() {
            assert!(!known[at + 1..].contains(one), "{one:?}");
        }
    }
}
