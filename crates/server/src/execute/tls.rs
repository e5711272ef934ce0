//! refresh_certs.

use ebbtide_protocol::reply;

use super::Executor;
use crate::output::Output;

impl Executor {
    /// Connections that are open keep the certificate that they have seen.
    pub(super) fn refresh_certificates(&self, output: &mut Output) {
        let out = output.bytes();
        let Some(certificates) = &self.shared.certificates else {
            return out.extend_from_slice(reply::TLS_NOT_ENABLED);
        };
        match certificates.refresh() {
            Ok(()) => out.extend_from_slice(reply::OK),
            Err(error) => {
                out.extend_from_slice(error.to_string().as_bytes());
                out.extend_from_slice(reply::LINE_END);
            }
        }
    }
}
