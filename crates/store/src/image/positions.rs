//! Where the segments of an image are in the store that is made of it.

use crate::segment::{Location, SegmentId, Segments};
use std::collections::HashMap;

/// Translates the numbers of segments by their positions.
pub(super) struct Positions<'s> {
    segments: &'s Segments,
    /// The place of each frame of the image.
    places: HashMap<u32, u32>,
    shift: u32,
}

impl<'s> Positions<'s> {
    /// With the frames of the image by place. `None` if they are not those of so many positions.
    pub fn new(segments: &'s Segments, frames: &[u32]) -> Option<Self> {
        let shift = segments.frame_shift();
        let places: HashMap<u32, u32> = frames.iter().copied().zip(0..).collect();
        let fits = places.len() == frames.len() && frames.len() == (segments.limit() as usize).div_ceil(1 << shift);
        fits.then_some(Self { segments, places, shift })
    }

    /// The segment for a number of the image; `None` if no segment of the image has it.
    pub fn segment(&self, number: u32) -> Option<SegmentId> {
        let index = number.checked_sub(1)?;
        let place = self.places.get(&(index >> self.shift))?;
        let position = (place << self.shift) + (index & ((1 << self.shift) - 1)) + 1;
        (position <= self.segments.limit()).then(|| self.segments.at_position(position))
    }

    pub fn location(&self, at: Location) -> Option<Location> {
        Some(Location::new(self.segment(at.segment_link())?, at.offset()))
    }
}
