package texts

// The texts without a connection.
const (
	NoConnection     = "No connection"
	NoConnectionHint = "The server did not answer."
	ReadLast         = "These pages are as you read them last:"
	NothingStored    = "No page is stored in this browser."
	TryAgain         = "Try again"
	StoredAt         = "As of"
	WaitsToBeSent    = "Waiting to be sent:"
	TakeBack         = "Take back"
	PerhapsSent      = "Taken back, but perhaps sent already:"
	DecisionRefused  = "Refused:"
	Dismiss          = "Dismiss"
	OpenRequest      = "Open the request"
	OtherAccount     = "Another account filled in this form. Open the page again."
)

// The texts of notifications in this browser.
const (
	Notifications    = "Notifications"
	NotifyHint       = "A browser shows your requests as notifications, with the buttons Approve and Deny where it has buttons."
	NotifyBrowser    = "Notify this browser"
	NotifyForbidden  = "The browser does not allow notifications of this site. Allow them in its settings."
	NotifyImpossible = "The browser could not subscribe to notifications:"
	NotifyNeeds      = "This browser shows notifications only over TLS, and on an iPhone only once the app is on the home screen."
	NotifyTest       = "Send a test"
	Remove           = "Remove"
	DeviceInactive   = "inactive: subscribe again"
	NotASubscription = "The form has no subscription of a browser."
)

// Worker are the texts of notifications that the service worker shows.
var Worker = map[string]string{
	"decided":  "It is decided.",
	"unsent":   Unsent,
	"approved": "Approved.",
	"denied":   "Denied.",
	"refused":  "Refused. Open the request to see why.",
}
