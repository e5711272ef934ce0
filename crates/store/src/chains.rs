//! TTL buckets: the chain of segments of each, and the open segments that writers append to.
//!
//! A chain is sorted by the time at which its segments were opened. A destination of a job takes the place, and the
//! opening time, of its oldest source. All segments of a chain have one expiry unit. A chain may hold items of longer
//! TTLs, when too many segments are open for each bucket to have one, but none of shorter TTLs: nothing in a segment
//! expires before its opening plus the shortest TTL of the bucket, less a unit.
//!
//! Lock order: a stripe before the chain lock of its bucket. Neither is held while a thread waits for a segment.

use crate::kill_point::{KillPoint, kill_point};
use crate::segment::{ExactExpiry, Header, Purpose, STAMP_SHIFT, SegmentId, Segments, State};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, Padded, lock, try_lock};
use crate::time::Moment;
use crate::ttl::{Lifetime, TtlBucket, TtlScale};
use std::sync::OnceLock;

/// All TTL buckets of a store.
pub struct Chains {
    pub scale: TtlScale,
    buckets: Vec<Chain>,
    stripes_max: usize,
    /// Follows the budget.
    open_limit: AtomicU32,
    open_count: AtomicU32,
    /// The highest stamp of any segment.
    last_stamp: AtomicU64,
    /// The sum of the expired bytes of all chains.
    expired_bytes: AtomicU64,
}

/// The result of a search for expired items in a chain.
#[derive(Debug, Default)]
pub struct ExpiredSegments {
    /// The first sealed segment in which everything has expired.
    pub expired: Option<SegmentId>,
    /// Segments with items that have expired since the last count: the first few.
    pub uncounted: Vec<SegmentId>,
    /// Sealed segments and open destinations in which some items have expired, with the bytes of these.
    pub partial: Vec<(SegmentId, u64)>,
}

/// Segments to count that one search returns, at most.
const UNCOUNTED_MAX: usize = 16;

struct Chain {
    links: Mutex<Links>,
    /// No uncounted item of the chain expires before this.
    next_check_seconds: AtomicU64,
    /// Bytes of expired items in segments with live items, at the last search.
    expired_bytes: AtomicU64,
    stripes_in_use: AtomicUsize,
    first_stripe: Stripe,
    more_stripes: OnceLock<Box<[Stripe]>>,
}

type Stripe = Padded<Mutex<Option<OpenSegment>>>;

#[derive(Default)]
struct Links {
    head: Option<SegmentId>,
    tail: Option<SegmentId>,
}

/// A segment that a stripe appends to.
pub struct OpenSegment {
    pub segment: SegmentId,
    offset: u32,
    seal_at_ms: u64,
}

/// The space that a writer needs.
#[derive(Clone, Copy, Debug)]
pub struct ReserveRequest {
    pub life: Lifetime,
    /// Bytes of the item.
    pub size: u32,
    /// A small number of the calling thread, to spread threads over stripes.
    pub writer: usize,
    /// The current flush generation.
    pub generation: u64,
}

/// Which open segments to seal.
#[derive(Clone, Copy, Debug)]
pub enum Seal {
    All,
    /// Those that have been open long enough.
    Due(Moment),
    Segment(SegmentId),
}

/// Space for one item at the end of an open segment. Holds the stripe until it is dropped; `commit` keeps the item.
pub struct Reservation<'c> {
    stripe: MutexGuard<'c, Option<OpenSegment>>,
    pub segment: SegmentId,
    pub offset: u32,
    pub expiry_byte: u8,
    pub exact: Option<ExactExpiry>,
    size: u32,
}

/// An open segment whose stripe is locked, and so stays open until this is dropped.
pub struct HeldOpen<'c> {
    _stripe: MutexGuard<'c, Option<OpenSegment>>,
    /// The expiry of an item of this life there.
    pub expiry_byte: u8,
}

/// Space at the end of an open segment.
struct Space {
    segment: SegmentId,
    offset: u32,
    expiry_byte: u8,
}

/// Space in a segment of several TTL buckets.
enum SharedSpace<'c> {
    Reserved(Reservation<'c>),
    /// There is a bucket for it, and no free segment.
    NoSegment,
    /// There is no bucket for it: the item's bucket opens a segment, beyond the limit.
    Unsuitable,
}

impl Space {
    fn reserve<'c>(self, stripe: MutexGuard<'c, Option<OpenSegment>>, need: &ReserveRequest) -> Reservation<'c> {
        let Self { segment, offset, expiry_byte } = self;
        Reservation { stripe, segment, offset, expiry_byte, exact: need.life.exact, size: need.size }
    }
}

/// The space for an item in the open segment of a stripe, if there is one that may stay open.
#[inline(always)]
fn fit(segments: &Segments, open: &Option<OpenSegment>, need: &ReserveRequest, moment: Moment) -> Option<Space> {
    let open = open.as_ref()?;
    let header = segments.header(open.segment);
    let expiry_byte = header.expiry_byte(need.life.expiry_seconds)?;
    let fits = open.offset + need.size <= segments.segment_bytes()
        && moment.ms < open.seal_at_ms
        && header.generation.load(Ordering::Relaxed) == need.generation;
    fits.then_some(Space { segment: open.segment, offset: open.offset, expiry_byte })
}

impl Reservation<'_> {
    /// The item is published: the space is used. A reservation dropped without this returns the space.
    pub fn commit(mut self, segments: &Segments) {
        kill_point(KillPoint::Commit);
        let open = self.stripe.as_mut().expect("a reservation holds its stripe's open segment");
        open.offset = self.offset + self.size;
        let header = segments.header(self.segment);
        header.append(open.offset, header.expiry_seconds(self.expiry_byte, self.exact));
    }
}

impl Chains {
    pub fn new(scale: TtlScale, stripes_max: usize, open_limit: u32) -> Self {
        let chain = || Chain {
            links: Mutex::new(Links::default()),
            next_check_seconds: AtomicU64::new(u64::MAX),
            expired_bytes: AtomicU64::new(0),
            stripes_in_use: AtomicUsize::new(1),
            first_stripe: Padded(Mutex::new(None)),
            more_stripes: OnceLock::new(),
        };
        Self {
            scale,
            buckets: (0..scale.buckets()).map(|_| chain()).collect(),
            stripes_max,
            open_limit: AtomicU32::new(open_limit),
            open_count: AtomicU32::new(0),
            last_stamp: AtomicU64::new(0),
            expired_bytes: AtomicU64::new(0),
        }
    }

    /// Bytes of the tables when every bucket is hot.
    pub fn bytes(scale: TtlScale, stripes_max: usize) -> u64 {
        // The first stripe is in the chain.
        let more_stripes = stripes_max.saturating_sub(1);
        (scale.buckets() * (size_of::<Chain>() + more_stripes * size_of::<Stripe>())) as u64
    }

    pub fn open_count(&self) -> u32 {
        self.open_count.load(Ordering::Relaxed)
    }

    /// Segments that writers may have open at once, unless a TTL can share none.
    pub fn open_limit(&self) -> u32 {
        self.open_limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. Above a lower one no segment is closed: writers share until enough are sealed.
    pub fn set_open_limit(&self, open_limit: u32) {
        self.open_limit.store(open_limit, Ordering::Relaxed);
    }

    fn chain(&self, bucket: TtlBucket) -> &Chain {
        &self.buckets[bucket.index()]
    }

    fn stripe(&self, bucket: TtlBucket, number: usize) -> &Stripe {
        let chain = self.chain(bucket);
        match number {
            0 => &chain.first_stripe,
            _ => {
                let more = chain.more_stripes.get_or_init(|| {
                    (1..self.stripes_max).map(|_| Padded(Mutex::new(None))).collect::<Vec<_>>().into_boxed_slice()
                });
                &more[number - 1]
            }
        }
    }

    /// Locks the stripe of the caller in a bucket. A bucket whose only stripe is contended gets one per core, while few
    /// segments are open.
    fn lock_stripe(&self, bucket: TtlBucket, writer: usize) -> (usize, MutexGuard<'_, Option<OpenSegment>>) {
        let in_use = &self.chain(bucket).stripes_in_use;
        let number = writer % in_use.load(Ordering::Relaxed);
        if let Some(guard) = try_lock(self.stripe(bucket, number)) {
            return (number, guard);
        }
        if number == 0 && self.open_count() + self.stripes_max as u32 <= self.open_limit() / 2 {
            in_use.store(self.stripes_max, Ordering::Relaxed);
        }
        let number = writer % in_use.load(Ordering::Relaxed);
        (number, lock(self.stripe(bucket, number)))
    }

    /// Reserves space in an open segment: the one of the caller's stripe, or a shared one when too many are open.
    /// `None` if one must be opened and there is no free segment.
    pub fn reserve(&self, segments: &Segments, need: &ReserveRequest, moment: Moment) -> Option<Reservation<'_>> {
        let (number, mut stripe) = self.lock_stripe(need.life.bucket, need.writer);
        if let Some(space) = fit(segments, &stripe, need, moment) {
            return Some(space.reserve(stripe, need));
        }
        self.seal(segments, &mut stripe);
        if self.open_count() >= self.open_limit() {
            if number > 0 {
                self.chain(need.life.bucket).stripes_in_use.store(1, Ordering::Relaxed);
            }
            match self.share(segments, need, number, moment) {
                SharedSpace::Reserved(reservation) => return Some(reservation),
                SharedSpace::NoSegment => return None,
                SharedSpace::Unsuitable => {}
            }
        }
        self.open(segments, stripe, need.life.bucket, need, moment)
    }

    /// Locks the stripe of a segment that may be open, for an item of this life that lies in it already. The caller
    /// keeps the segment from reuse. `None` if the segment takes no such item any more.
    pub fn hold_open(
        &self,
        segments: &Segments,
        segment: SegmentId,
        life: Lifetime,
        moment: Moment,
    ) -> Option<HeldOpen<'_>> {
        let header = segments.header(segment);
        if header.state() != State::Open {
            return None;
        }
        let bucket = TtlBucket::from_index(header.ttl_bucket.load(Ordering::Relaxed).into());
        let more = self.chain(bucket).more_stripes.get().map_or(0, |stripes| stripes.len());
        for number in 0..=more {
            let stripe = lock(self.stripe(bucket, number));
            let Some(open) = stripe.as_ref().filter(|open| open.segment == segment) else { continue };
            // The conditions of a reservation, and no shorter TTL than the bucket's.
            let fits = moment.ms < open.seal_at_ms && bucket.index() <= life.bucket.index();
            let expiry_byte = header.expiry_byte(life.expiry_seconds).filter(|_| fits)?;
            header.note_expiry(header.expiry_seconds(expiry_byte, life.exact));
            return Some(HeldOpen { _stripe: stripe, expiry_byte });
        }
        None
    }

    /// Space in a segment that several TTL buckets share, because too many segments are open.
    ///
    /// It must belong to a bucket with shorter TTLs, because nothing in a chain may expire before its TTL allows. The
    /// unit there is as fine or finer; its byte must hold the expiry. If no such segment is open, one is opened in the
    /// bucket that most other buckets can share. No segment that is less than half full is sealed for this. Called
    /// under the lock of the caller's stripe, `number` in its bucket: other stripes are only tried.
    #[cold]
    fn share(&self, segments: &Segments, need: &ReserveRequest, number: usize, moment: Moment) -> SharedSpace<'_> {
        let item_bucket = need.life.bucket;
        let first = self.scale.first_that_holds(item_bucket).index();
        let last = if number == 0 { item_bucket.index() } else { item_bucket.index() + 1 };
        for index in (first..last).rev() {
            let Some(stripe) = try_lock(self.stripe(TtlBucket::from_index(index), 0)) else { continue };
            if let Some(space) = fit(segments, &stripe, need, moment) {
                return SharedSpace::Reserved(space.reserve(stripe, need));
            }
        }
        let base = self.scale.shared(item_bucket);
        let span = need.life.expiry_seconds.and_then(|seconds| seconds.checked_sub(self.origin(base, moment)));
        let holds = span.is_some_and(|span| span >> self.scale.shift(base) <= u8::MAX.into());
        if base == item_bucket || !holds {
            return SharedSpace::Unsuitable;
        }
        let Some(mut stripe) = try_lock(self.stripe(base, 0)) else { return SharedSpace::Unsuitable };
        let is_full = |open: &OpenSegment| open.offset >= segments.segment_bytes() / 2;
        if stripe.as_ref().is_some_and(|open| moment.ms < open.seal_at_ms && !is_full(open)) {
            // It has space for others.
            return SharedSpace::Unsuitable;
        }
        self.seal(segments, &mut stripe);
        self.open(segments, stripe, base, need, moment).map_or(SharedSpace::NoSegment, SharedSpace::Reserved)
    }

    /// Opens a segment of `bucket` in a stripe that has none, for an item that it can hold.
    fn open<'c>(
        &self,
        segments: &Segments,
        mut stripe: MutexGuard<'c, Option<OpenSegment>>,
        bucket: TtlBucket,
        need: &ReserveRequest,
        moment: Moment,
    ) -> Option<Reservation<'c>> {
        let segment = segments.take(Purpose::Write)?;
        let header = segments.header(segment);
        self.start(header, bucket, moment, need.generation);
        self.push(segments, bucket, segment, moment);
        self.open_count.fetch_add(1, Ordering::Relaxed);
        let seal_at_ms = self.seal_at_ms(segments, bucket, moment);
        *stripe = Some(OpenSegment { segment, offset: 0, seal_at_ms });
        let expiry_byte =
            header.expiry_byte(need.life.expiry_seconds).expect("a fresh segment spans every TTL of its bucket");
        Some(Reservation { stripe, segment, offset: 0, expiry_byte, exact: need.life.exact, size: need.size })
    }

    /// The time until which a segment of a bucket opened now may stay open. A half-empty sealed segment wastes memory
    /// until it is compacted. So while segments are short it stays open for longer, and keeps its expired items (see
    /// `evict::expiry`).
    pub fn seal_at_ms(&self, segments: &Segments, bucket: TtlBucket, moment: Moment) -> u64 {
        moment.ms.saturating_add(self.scale.open_ms(bucket, segments.are_short()))
    }

    /// The origin of expiry bytes in a segment of a bucket opened now.
    fn origin(&self, bucket: TtlBucket, moment: Moment) -> u64 {
        let shift = self.scale.shift(bucket);
        moment.seconds().checked_shr(shift.into()).map_or(0, |units| units << shift)
    }

    /// Sets the header of a segment opened now.
    pub fn start(&self, header: &Header, bucket: TtlBucket, moment: Moment, generation: u64) {
        header.shift.store(self.scale.shift(bucket), Ordering::Relaxed);
        header.origin_seconds.store(self.origin(bucket, moment), Ordering::Relaxed);
        header.ttl_bucket.store(bucket.index() as u16, Ordering::Relaxed);
        header.generation.store(generation, Ordering::Relaxed);
        header.opened_ms.store(moment.ms, Ordering::Relaxed);
        header.stamp.store(self.next_stamp(moment), Ordering::Relaxed);
    }

    /// The stamp of a segment opened now: higher than all before, so that segments of one millisecond have an order.
    fn next_stamp(&self, moment: Moment) -> u64 {
        let now = moment.ms << STAMP_SHIFT;
        let later = |last: u64| Some(now.max(last + 1));
        let last = self.last_stamp.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        last.ok().and_then(later).expect("there is always a later one")
    }

    fn seal(&self, segments: &Segments, stripe: &mut MutexGuard<'_, Option<OpenSegment>>) {
        if let Some(open) = stripe.take() {
            segments.seal(open.segment);
            self.open_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Seals open segments. Returns how many.
    pub fn seal_open(&self, segments: &Segments, which: Seal) -> u32 {
        let mut sealed = 0;
        for index in 0..self.buckets.len() {
            let bucket = TtlBucket::from_index(index);
            let more = self.chain(bucket).more_stripes.get().map_or(0, |stripes| stripes.len());
            for number in 0..=more {
                // A writer that holds the stripe seals the segment itself when it is due.
                let Some(mut stripe) = try_lock(self.stripe(bucket, number)) else { continue };
                let chosen = |open: &OpenSegment| match which {
                    Seal::All => true,
                    Seal::Due(moment) => moment.ms >= open.seal_at_ms,
                    Seal::Segment(segment) => open.segment == segment,
                };
                if stripe.as_ref().is_some_and(chosen) {
                    self.seal(segments, &mut stripe);
                    sealed += 1;
                }
            }
        }
        sealed
    }

    fn push(&self, segments: &Segments, bucket: TtlBucket, segment: SegmentId, moment: Moment) {
        let chain = self.chain(bucket);
        let mut links = lock(&chain.links);
        let header = segments.header(segment);
        header.previous.store(links.tail.map_or(0, SegmentId::number), Ordering::Relaxed);
        header.next.store(0, Ordering::Relaxed);
        match links.tail {
            Some(tail) => {
                let tail = segments.header(tail);
                tail.next.store(segment.number(), Ordering::Relaxed);
                header.opened_ms.fetch_max(tail.opened_ms.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            None => links.head = Some(segment),
        }
        links.tail = Some(segment);
        let first_possible = self.first_possible_expiry(bucket, moment.ms);
        chain.next_check_seconds.fetch_min(first_possible, Ordering::Relaxed);
    }

    /// The newest stamp that a segment has had.
    pub fn last_stamp(&self) -> u64 {
        self.last_stamp.load(Ordering::Relaxed)
    }

    /// Later stamps are above this one.
    pub fn restore_stamp(&self, last_stamp: u64) {
        self.last_stamp.store(last_stamp, Ordering::Relaxed);
    }

    /// Appends a segment of an image to its TTL bucket, and schedules a search of the bucket for expired items. False
    /// if there is no such bucket, its unit is another, or the origin is no multiple of it.
    pub fn restore(&self, segments: &Segments, segment: SegmentId) -> bool {
        let header = segments.header(segment);
        let index = usize::from(header.ttl_bucket.load(Ordering::Relaxed));
        if index >= self.buckets.len() {
            return false;
        }
        let bucket = TtlBucket::from_index(index);
        let origin_seconds = header.origin_seconds.load(Ordering::Relaxed);
        let origin = self.origin(bucket, Moment { ms: origin_seconds * 1000, quantum: 0 });
        if (self.scale.shift(bucket), origin) != (header.shift.load(Ordering::Relaxed), origin_seconds) {
            return false;
        }
        self.push(segments, bucket, segment, Moment { ms: header.opened_ms.load(Ordering::Relaxed), quantum: 0 });
        self.schedule_check(bucket, 0);
        true
    }

    /// The earliest second at which a segment of the bucket, opened at `opened_ms`, can have expired wholly by its TTL.
    fn first_possible_expiry(&self, bucket: TtlBucket, opened_ms: u64) -> u64 {
        match self.scale.shortest_seconds(bucket) {
            None => u64::MAX,
            Some(shortest) => (opened_ms / 1000 + u64::from(shortest)).saturating_sub(1 << self.scale.shift(bucket)),
        }
    }

    /// Takes a segment out of its chain.
    pub fn remove(&self, segments: &Segments, segment: SegmentId) {
        let header = segments.header(segment);
        let bucket = TtlBucket::from_index(header.ttl_bucket.load(Ordering::Relaxed).into());
        let mut links = lock(&self.chain(bucket).links);
        let previous = SegmentId::from_link(header.previous.load(Ordering::Relaxed));
        let next = SegmentId::from_link(header.next.load(Ordering::Relaxed));
        match previous {
            Some(previous) => {
                segments.header(previous).next.store(next.map_or(0, SegmentId::number), Ordering::Relaxed);
            }
            None => links.head = next,
        }
        match next {
            Some(next) => {
                segments.header(next).previous.store(previous.map_or(0, SegmentId::number), Ordering::Relaxed);
            }
            None => links.tail = previous,
        }
        header.previous.store(0, Ordering::Relaxed);
        header.next.store(0, Ordering::Relaxed);
    }

    /// Puts `segment` into the chain in front of `before`, with the opening time of `before`.
    pub fn insert_before(&self, segments: &Segments, before: SegmentId, segment: SegmentId) {
        let (header, after) = (segments.header(segment), segments.header(before));
        let bucket = TtlBucket::from_index(after.ttl_bucket.load(Ordering::Relaxed).into());
        let mut links = lock(&self.chain(bucket).links);
        header.opened_ms.store(after.opened_ms.load(Ordering::Relaxed), Ordering::Relaxed);
        let previous = after.previous.load(Ordering::Relaxed);
        header.previous.store(previous, Ordering::Relaxed);
        header.next.store(before.number(), Ordering::Relaxed);
        after.previous.store(segment.number(), Ordering::Relaxed);
        match SegmentId::from_link(previous) {
            Some(previous) => segments.header(previous).next.store(segment.number(), Ordering::Relaxed),
            None => links.head = Some(segment),
        }
        // The items that expire last in the sources may not have been kept.
        self.chain(bucket).next_check_seconds.fetch_min(header.next_expiry_seconds(), Ordering::Relaxed);
    }

    /// Up to `count` sealed segments of one chain, from `first` on, for which `wanted` holds.
    pub fn run(
        &self,
        segments: &Segments,
        first: SegmentId,
        count: usize,
        mut wanted: impl FnMut(SegmentId) -> bool,
    ) -> Vec<SegmentId> {
        let bucket = TtlBucket::from_index(segments.header(first).ttl_bucket.load(Ordering::Relaxed).into());
        let _links = lock(&self.chain(bucket).links);
        std::iter::successors(Some(first), |segment| {
            SegmentId::from_link(segments.header(*segment).next.load(Ordering::Relaxed))
        })
        .take(count)
        .take_while(|segment| segments.header(*segment).state() == State::Sealed && wanted(*segment))
        .collect()
    }

    /// Buckets in which uncounted items may have expired by `seconds`.
    pub fn due(&self, seconds: u64) -> impl Iterator<Item = TtlBucket> + '_ {
        let due = move |chain: &Chain| chain.next_check_seconds.load(Ordering::Relaxed) <= seconds;
        self.buckets.iter().enumerate().filter(move |(_, chain)| due(chain)).map(|(i, _)| TtlBucket::from_index(i))
    }

    /// Buckets with expired items in segments with live items, at the last searches.
    pub fn partly_expired(&self) -> impl Iterator<Item = TtlBucket> + '_ {
        let has_expired = |chain: &Chain| chain.expired_bytes.load(Ordering::Relaxed) > 0;
        let chains = self.buckets.iter().enumerate();
        chains.filter(move |(_, chain)| has_expired(chain)).map(|(index, _)| TtlBucket::from_index(index))
    }

    /// Bytes of expired items in segments with live items, at the last searches.
    pub fn expired_bytes(&self) -> u64 {
        self.expired_bytes.load(Ordering::Relaxed)
    }

    /// Searches a bucket for items expired by `seconds`, and stores the time of the next search. Reads only segments
    /// old enough for their TTL.
    pub fn find_expired(&self, segments: &Segments, bucket: TtlBucket, seconds: u64) -> ExpiredSegments {
        let chain = self.chain(bucket);
        let links = lock(&chain.links);
        let mut found = ExpiredSegments::default();
        let mut next_check = u64::MAX;
        let mut at = links.head;
        while let Some(segment) = at {
            let header = segments.header(segment);
            let possible = self.first_possible_expiry(bucket, header.opened_ms.load(Ordering::Relaxed));
            if possible > seconds {
                next_check = next_check.min(possible);
                break;
            }
            let (state, next) = (header.state(), header.next_expiry_seconds());
            let is_expired = header.latest_expiry_seconds() <= seconds;
            if is_expired && state == State::Sealed {
                next_check = seconds;
                found.expired = Some(segment);
                break;
            }
            // An open segment is searched again, and a draining one represents the items that its job copies meanwhile.
            next_check = next_check.min(if is_expired { seconds } else { next });
            if state != State::Draining && !is_expired {
                if next <= seconds && found.uncounted.len() < UNCOUNTED_MAX {
                    found.uncounted.push(segment);
                }
                let bytes = header.expired_bytes();
                if bytes > 0 && header.pins() == 0 {
                    found.partial.push((segment, bytes));
                }
            }
            at = SegmentId::from_link(header.next.load(Ordering::Relaxed));
        }
        chain.next_check_seconds.store(next_check, Ordering::Relaxed);
        if found.expired.is_none() {
            let bytes = found.partial.iter().map(|(_, bytes)| bytes).sum();
            let before = chain.expired_bytes.swap(bytes, Ordering::Relaxed);
            // Both wrap: the sum is right once all differences are added.
            self.expired_bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        }
        found
    }

    /// Makes the next maintenance after `seconds` search a bucket for expired items.
    pub fn schedule_check(&self, bucket: TtlBucket, seconds: u64) {
        self.chain(bucket).next_check_seconds.fetch_min(seconds, Ordering::Relaxed);
    }

    /// Every chain, front to back, for `verify`.
    pub fn each_chain(&self, segments: &Segments, mut visit: impl FnMut(TtlBucket, &[SegmentId])) {
        for (index, chain) in self.buckets.iter().enumerate() {
            let links = lock(&chain.links);
            let all: Vec<_> = std::iter::successors(links.head, |segment| {
                SegmentId::from_link(segments.header(*segment).next.load(Ordering::Relaxed))
            })
            .collect();
            assert_eq!(all.last().copied(), links.tail, "a chain ends at its tail");
            visit(TtlBucket::from_index(index), &all);
        }
    }

    /// Every open segment that a stripe holds, for `verify`.
    pub fn each_open(&self, mut visit: impl FnMut(SegmentId, u32)) {
        for chain in &self.buckets {
            let more = chain.more_stripes.get().into_iter().flat_map(|stripes| stripes.iter());
            for stripe in std::iter::once(&chain.first_stripe).chain(more) {
                if let Some(open) = lock(stripe).as_ref() {
                    visit(open.segment, open.offset);
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::epoch::Domain;
    use crate::segment::bytes_for;

    #[test]
    fn a_destination_expiring_before_its_sources_is_found() {
        let chains = Chains::new(TtlScale::for_open_segments(33), 1, 4);
        let segments = Segments::new(8, 8, bytes_for(4 << 10), 1, Domain::new()).unwrap();
        let bucket = chains.scale.bucket(100);
        let moment = Moment { ms: 1000, quantum: 0 };
        let segment = |latest| {
            let segment = segments.take(Purpose::Merge).unwrap();
            chains.start(segments.header(segment), bucket, moment, 0);
            segments.header(segment).append(100, Some(latest));
            segment
        };
        let source = segment(120);
        chains.push(&segments, bucket, source, moment);
        segments.header(source).pass_to(State::Sealed);
        assert_eq!(chains.find_expired(&segments, bucket, 90).expired, None);
        assert_eq!(chains.due(110).count(), 0, "nothing expires before 120");
        let destination = segment(100);
        chains.insert_before(&segments, source, destination);
        segments.header(destination).pass_to(State::Sealed);
        chains.remove(&segments, source);
        assert_eq!(chains.due(100).collect::<Vec<_>>(), [bucket]);
        assert_eq!(chains.find_expired(&segments, bucket, 100).expired, Some(destination));
    }
}
