package texts

// The texts of the page of messengers.
const (
	Messengers       = "Messengers"
	AboutMessengers  = "Pair a messenger with your account. You can then talk to the assistant there, and approve requests."
	NoMessengers     = "No messenger is set up. An administrator adds one under Settings, Channels."
	PairWith         = "Pair with %s"
	PairingCode      = "Code for %s"
	SendCode         = "Send this message to %s from the conversation that you want to pair. In a group, every member sends a code."
	MailCode         = "Send this as the subject or the first line of a mail to %s, from the address that you want to pair."
	CodeExpires      = "The code can be used once. It expires at"
	ShowPairings     = "Show the pairings"
	PairedMessengers = "Paired"
	NoPairings       = "No messenger is paired."
	PairedGroup      = "in a group"
	PairingExpires   = "expires"
	PairingExpired   = "expired"
	RevokePairing    = "Revoke"
)
