package email

import (
	"fmt"
	"net/mail"
	"slices"
	"strings"

	"github.com/emersion/go-message"

	"pocketcoder/handlers/channel"
)

// sender returns the address of the one sender of a mail, and the name that the sender uses. The error is ignored
// unless the receiving server states that the address is authentic.
func (m *Mailbox) sender(h *message.Header) (address, name string, err error) {
	if name := blankName(h); name != "" {
		return "", "", ignored(fmt.Sprintf("the name of its field %q has a blank, so servers read the field in different ways", name))
	}
	fields := values(h, "From")
	if len(fields) != 1 {
		return "", "", ignored("it has no From, or more than one")
	}
	list, err := (&mail.AddressParser{WordDecoder: words}).ParseList(fields[0])
	if err != nil || len(list) != 1 {
		return "", "", ignored("its From is not one address")
	}
	address, valid := channel.MailAddress(list[0].Address)
	if !valid {
		return "", "", ignored("the address in its From cannot be used")
	}
	if to := values(h, "To"); len(to) != 1 || !m.among(to[0]) {
		return "", "", ignored(m.address + " is not in its To")
	}
	_, domain, _ := strings.Cut(address, "@")
	authenticated := values(h, "Authentication-Results")
	for _, field := range authenticated {
		id, results, err := parseResults(field)
		if !m.channel.Trusts(id) {
			continue // another server's, or forged
		}
		if err != nil || !passes(results, domain) { // further ones may be forged
			return "", "", ignored("neither DKIM nor SPF passed for exactly " + domain)
		}
		return address, list[0].Name, nil
	}
	return "", "", m.untrusted(authenticated)
}

// untrusted returns the reason why a mail without a header of a trusted server is ignored. The reason names the server
// in the topmost header, so that the operator can add it to the channel.
func (m *Mailbox) untrusted(fields []string) error {
	if len(fields) == 0 {
		return ignored("it has no Authentication-Results header, so nothing says who sent it")
	}
	id, _, _ := parseResults(fields[0])
	if id == "" {
		return ignored("its topmost Authentication-Results header does not begin with the name of a server (those of " +
			"Microsoft 365 never do), so the sender could have written the header")
	}
	return ignored(fmt.Sprintf("its topmost Authentication-Results header is of %.100q, and the channel trusts only %s",
		id, m.channel.Authserv))
}

// blankName returns the name of a field that has a blank, as in "From : …", "" for none. RFC 5322 forbids it. A server
// that removes forged fields may leave such a field, and the parser would take it for the genuine one.
func blankName(h *message.Header) string {
	for fields := h.Fields(); fields.Next(); {
		raw, err := fields.Raw()
		name, _, _ := strings.Cut(string(raw), ":")
		if err != nil || strings.ContainsAny(name, " \t\r\n\v\f") {
			return name
		}
	}
	return ""
}

// among reports whether the mailbox is among some addresses.
func (m *Mailbox) among(field string) bool {
	list, err := (&mail.AddressParser{WordDecoder: words}).ParseList(field)
	is := func(a *mail.Address) bool { return strings.EqualFold(a.Address, m.address) }
	return err == nil && slices.ContainsFunc(list, is)
}

// values returns the values of the fields with a name, from the top.
func values(h *message.Header, name string) (all []string) {
	for fields := h.FieldsByKey(name); fields.Next(); {
		all = append(all, fields.Value())
	}
	return all
}

// passes reports whether DKIM or SPF passed for exactly a domain.
func passes(results []result, domain string) bool {
	for _, r := range results {
		if r.value != "pass" {
			continue
		}
		switch r.method {
		case "dkim":
			of := r.properties["header.d"]
			if of == "" {
				of = domainOf(r.properties["header.i"])
			}
			if strings.EqualFold(of, domain) {
				return true
			}
		case "spf":
			if strings.EqualFold(domainOf(r.properties["smtp.mailfrom"]), domain) {
				return true
			}
		}
	}
	return false
}

// domainOf returns the domain of an address, which may have no local part.
func domainOf(address string) string {
	address = strings.TrimSuffix(strings.TrimPrefix(address, "<"), ">")
	return address[strings.LastIndexByte(address, '@')+1:]
}

// result is what a server found out about a mail with a method.
type result struct {
	method, value string            // in lower case
	properties    map[string]string // by their names in lower case, such as header.d
}

const maxResults = 8 << 10 // bytes of an Authentication-Results field

// parseResults parses an Authentication-Results field (RFC 8601). It is strict, because parts of the field repeat what
// the sender wrote: quoted texts and comments are one token each, and a field with anything unexpected is an error. So
// is a quote in a comment: it begins a local part of the sender's choice, whose parenthesis would end the comment.
func parseResults(field string) (id string, results []result, err error) {
	parts, err := tokens(field[:min(len(field), maxResults)])
	if len(field) > maxResults {
		err = fmt.Errorf("the field has more than %d KiB", maxResults>>10)
	}
	if len(parts[0]) > 0 && !strings.Contains(parts[0][0], "=") { // else the first result takes the place of the name
		id = parts[0][0]
	}
	if err != nil {
		return id, nil, err
	}
	if len(parts[0]) > 2 || id == "" || len(parts[0]) == 2 && parts[0][1] != "1" {
		return id, nil, fmt.Errorf("want the name of a server, and version 1 or none; got %q", parts[0])
	}
	for _, words := range parts[1:] {
		if len(words) == 0 || len(words) == 1 && strings.EqualFold(words[0], "none") {
			continue
		}
		r := result{properties: map[string]string{}}
		for i, word := range words {
			key, value, ok := strings.Cut(word, "=")
			key = strings.ToLower(key)
			if _, twice := r.properties[key]; !ok || twice {
				return id, nil, fmt.Errorf("the field has an unexpected word: %q", word)
			}
			if i > 0 {
				r.properties[key] = value
				continue
			}
			r.method, _, _ = strings.Cut(key, "/") // a version
			r.value = strings.ToLower(value)
		}
		results = append(results, r)
	}
	return id, results, nil
}

// tokens returns the words of the parts of a field that semicolons separate. Comments are left out. A quoted text is a
// part of its word, without the quotes. Blanks around = are left out.
func tokens(field string) (parts [][]string, err error) {
	parts = [][]string{{}}
	var word strings.Builder
	inWord, joined := false, false
	end := func() {
		last := len(parts) - 1
		if n := len(parts[last]); inWord && n > 0 && (joined || strings.HasPrefix(word.String(), "=")) {
			parts[last][n-1] += word.String()
		} else if inWord {
			parts[last] = append(parts[last], word.String())
		}
		joined = inWord && strings.HasSuffix(word.String(), "=") || !inWord && joined
		inWord = false
		word.Reset()
	}
	for i := 0; i < len(field); i++ {
		switch c := field[i]; c {
		case '(':
			end()
			if i, err = skipComment(field, i); err != nil {
				return parts, err
			}
		case '"':
			inWord = true
			for i++; i < len(field) && field[i] != '"'; i++ {
				if field[i] == '\\' {
					i++
				}
				if i < len(field) {
					word.WriteByte(field[i])
				}
			}
			if i >= len(field) {
				return parts, fmt.Errorf("a quoted text does not end")
			}
		case ';':
			end()
			parts, joined = append(parts, []string{}), false
		case ' ', '\t', '\r', '\n':
			end()
		case ')':
			return parts, fmt.Errorf("a comment ends that does not begin")
		default:
			inWord = true
			word.WriteByte(c)
		}
	}
	end()
	return parts, nil
}

// skipComment returns the index of the parenthesis that ends a comment.
func skipComment(field string, at int) (end int, err error) {
	depth := 0
	for ; at < len(field); at++ {
		switch field[at] {
		case '\\':
			at++
		case '"':
			return at, fmt.Errorf("a comment has a quoted text")
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return at, nil
			}
		}
	}
	return at, fmt.Errorf("a comment does not end")
}
