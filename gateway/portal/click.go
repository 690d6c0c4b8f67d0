// Logins by a click: terms to accept, and what the operator asks.

package portal

// FieldOfPage is a field of the form of the click, as a page shows it.
type FieldOfPage struct {
	Name         string // of the input
	Label        string // in the page's language
	Value        string // as typed before
	Required     bool
	Wrong        bool
	Type         string // of the input
	Max          int    // characters
	Autocomplete string
}

// TodayOfPage is what is left of a day's time and data, as a page shows it.
type TodayOfPage struct {
	TimeLeft string // empty: not limited by the day
	DataLeft string // empty: not limited by the day
	Again    string // when the next day begins: "04:00"
	UsedUp   bool
}
