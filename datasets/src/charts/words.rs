//! The words that titles and labels are drawn from.

/// First words of titles.
pub const QUALIFIERS: [&str; 16] = [
    "Daily", "Weekly", "Monthly", "Yearly", "Total", "Average", "Local", "Global", "Summer", "Winter", "Early", "Late",
    "Urban", "Rural", "Online", "Indoor",
];

/// Second words of titles.
pub const SUBJECTS: [&str; 24] = [
    "Sales", "Visits", "Votes", "Rain", "Snow", "Traffic", "Output", "Energy", "Water", "Harvest", "Rides", "Calls",
    "Orders", "Exports", "Budget", "Scores", "Staff", "Books", "Coffee", "Tickets", "Flights", "Noise", "Growth",
    "Demand",
];

/// What the items of a chart are, and the labels (four letters at most) they are drawn from.
pub const GROUPS: [(&str, [&str; 7]); 4] = [
    ("days", ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]),
    ("crops", ["Fig", "Plum", "Pear", "Kiwi", "Lime", "Date", "Corn"]),
    ("animals", ["Cat", "Dog", "Fox", "Owl", "Bear", "Wolf", "Hare"]),
    ("cities", ["Oslo", "Rome", "Lima", "Bern", "Kyiv", "Cork", "Nice"]),
];

/// Whether a title is kept for held-out charts: one pair of words in eight, so that each word is also seen in training.
pub fn title_is_held_out(qualifier: usize, subject: usize) -> bool {
    (qualifier * 3 + subject).is_multiple_of(8)
}

/// The word for a count of items.
pub fn count(n: usize) -> &'static str {
    match n {
        3 => "three",
        4 => "four",
        _ => "five",
    }
}
