package projections

// Decode is decode, for the tests, which are outside the package.
var Decode = decode

// The constants that tests check.
const (
	MaxPreview  = maxPreview
	SelectShown = selectShown
)

// SetPreview is setPreview.
func (c *Chat) SetPreview(text string) { c.setPreview(text) }
