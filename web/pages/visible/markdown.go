package visible

import (
	"bytes"
	"context"
	"html"
	"io"
	"net"
	"net/url"
	"strings"

	"github.com/a-h/templ"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
	"golang.org/x/net/idna"

	"pocketcoder/handlers/policy/display"
)

// What is read as markdown: a longer text, or one with more of the characters that nest or pair, takes the parser too
// long, and a table gets a cell for every column of its head in every row. (Measured: 32 KiB of one such character
// take 0.3 s.) It is shown as it is.
const (
	maxMarkdown   = 64 << 10 // bytes
	maxMarks      = 4000     // of one character
	maxTableCells = 20_000
)

// isPlain reports whether a text is shown as it is.
func isPlain(text string) bool {
	if len(text) > maxMarkdown {
		return true
	}
	for _, mark := range []string{">", "[", "]", "*", "_", "~", "`", "<"} {
		if strings.Count(text, mark) > maxMarks {
			return true
		}
	}
	columns := 0
	for line := range strings.Lines(text) {
		columns = max(columns, strings.Count(line, "|"))
	}
	return columns*strings.Count(text, "\n") > maxTableCells
}

// markdown renders what a model writes. It has no attributes and so no ids: an id would stand for an element of the
// page.
var markdown = goldmark.New(
	// Without the transformer of link reference definitions, which would show nothing.
	goldmark.WithParser(parser.NewParser(parser.WithBlockParsers(parser.DefaultBlockParsers()...),
		parser.WithInlineParsers(parser.DefaultInlineParsers()...))),
	goldmark.WithExtensions(
		// the policy forbids style attributes
		extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
		extension.Strikethrough, extension.Linkify, extension.TaskList,
	),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(outsideNodes{}, 100))),
)

// Markdown shows a text as markdown.
func Markdown(text string) templ.Component {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		var b bytes.Buffer
		if isPlain(text) || markdown.Convert([]byte(text), &b) != nil {
			_, err := io.WriteString(w, "<pre>"+html.EscapeString(display.Prose(text))+"</pre>")
			return err
		}
		_, err := io.WriteString(w, plainHTML(b.String()))
		return err
	})
}

// plainHTML names the hidden characters of rendered markdown, those that were written as entities too.
func plainHTML(rendered string) string {
	var b strings.Builder
	for _, p := range display.ProsePieces(rendered) {
		if p.Hidden {
			p.Text = html.EscapeString(p.Text)
		}
		b.WriteString(p.Text)
	}
	return b.String()
}

// outsideNodes renders what could lead out of the page: links with the host that they lead to, images as their
// descriptions, and HTML as text. It also renders code, in colours.
type outsideNodes struct{}

func (outsideNodes) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindLink, renderLink)
	r.Register(ast.KindAutoLink, renderAutoLink)
	r.Register(ast.KindImage, renderImage)
	r.Register(ast.KindRawHTML, renderRawHTML)
	r.Register(ast.KindHTMLBlock, renderHTMLBlock)
	r.Register(ast.KindFencedCodeBlock, renderCode)
}

// outside returns an address that a link may lead to, and its host. Other addresses have no href.
func outside(address string) (href, host string) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", address
	}
	if host, err = asciiHost(u); err != nil {
		return "", address
	}
	u.Host = host // what is shown is what is opened
	return u.String(), host
}

// asciiHost returns the host of an address as browsers look it up. Letters of other alphabets look like those of a
// known host.
func asciiHost(u *url.URL) (host string, err error) {
	host = u.Hostname()
	if net.ParseIP(host) != nil {
		return u.Host, nil
	}
	if host, err = idna.Lookup.ToASCII(host); err == nil && u.Port() != "" {
		host += ":" + u.Port()
	}
	return host, err
}

func openLink(w util.BufWriter, href string) {
	_, _ = w.WriteString(`<a href="` + html.EscapeString(href) + `" rel="nofollow noopener noreferrer" target="_blank">`)
}

func writeHost(w util.BufWriter, host string) {
	_, _ = w.WriteString(` <span class="host">(` + html.EscapeString(host) + `)</span>`)
}

func renderLink(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	href, host := outside(string(node.(*ast.Link).Destination))
	switch {
	case entering && href != "":
		openLink(w, href)
	case !entering && href != "":
		_, _ = w.WriteString("</a>")
		writeHost(w, host)
	case !entering:
		writeHost(w, host)
	}
	return ast.WalkContinue, nil
}

func renderAutoLink(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	n := node.(*ast.AutoLink)
	label := string(n.Label(source))
	href, host := outside(string(n.URL(source)))
	if href == "" {
		_, _ = w.WriteString(html.EscapeString(label))
		return ast.WalkContinue, nil
	}
	openLink(w, href)
	_, _ = w.WriteString(html.EscapeString(label) + "</a>")
	if strings.Contains(label, "@") || !strings.Contains(label, host) { // what is before an @ looks like a host
		writeHost(w, host)
	}
	return ast.WalkContinue, nil
}

func renderImage(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString(`<span class="image">` + "Image: ")
		return ast.WalkContinue, nil
	}
	_, host := outside(string(node.(*ast.Image).Destination))
	_, _ = w.WriteString("</span>")
	writeHost(w, host)
	return ast.WalkContinue, nil
}

func renderRawHTML(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		segments := node.(*ast.RawHTML).Segments
		for i := range segments.Len() {
			segment := segments.At(i)
			_, _ = w.WriteString(html.EscapeString(string(segment.Value(source))))
		}
	}
	return ast.WalkSkipChildren, nil
}

func renderHTMLBlock(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.HTMLBlock)
	if entering {
		_, _ = w.WriteString("<pre>")
		for i := range n.Lines().Len() {
			line := n.Lines().At(i)
			_, _ = w.WriteString(html.EscapeString(string(line.Value(source))))
		}
		return ast.WalkContinue, nil
	}
	if n.HasClosure() {
		_, _ = w.WriteString(html.EscapeString(string(n.ClosureLine.Value(source))))
	}
	_, _ = w.WriteString("</pre>\n")
	return ast.WalkContinue, nil
}

func renderCode(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.FencedCodeBlock)
	if !entering {
		return ast.WalkContinue, nil
	}
	var code strings.Builder
	for i := range n.Lines().Len() {
		line := n.Lines().At(i)
		code.Write(line.Value(source))
	}
	_, _ = w.WriteString("<pre><code>")
	for _, t := range Code(string(n.Language(source)), code.String()) {
		if t.Class == "" {
			_, _ = w.WriteString(html.EscapeString(t.Text))
		} else {
			_, _ = w.WriteString(`<span class="` + t.Class + `">` + html.EscapeString(t.Text) + "</span>")
		}
	}
	_, _ = w.WriteString("</code></pre>\n")
	return ast.WalkSkipChildren, nil
}
