package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

const session = `
# The pods of all clusters.
$ kubectl --context fleet get pods -A
one cluster
# 1 s, directly 1 s

# All of them.
$ kubectl --context fleet get pods -A
NAME   CLUSTER
web    <member1> & "member2"
# 2 s, directly 1 s + 1 s
$ kubectl --context member1 get nodes
member1-node

# A process.
$ kubectl --context fleet exec web@member2 -- date
now
$ kubectl --context fleet logs --follow web@member1
# a line of the log that is no explanation
^C

# A pass.
$ clusterpass pass create ann > ann.kubeconfig
$ kubectl --kubeconfig ann.kubeconfig --context member1 delete pod web
Error: refused` + " " + `because it is too long for one line of the terminal, and therefore continues on another one
`

func TestPictureHasTheShownCommands(t *testing.T) {
	svg, err := Draw(session)
	if err != nil {
		t.Fatal(err)
	}
	want := `# All of them.
$ kubectl --context fleet get pods -A
NAME   CLUSTER
web    <member1> & "member2"
# 2 s, directly 1 s + 1 s
# A process.
$ kubectl --context fleet exec web@member2 -- date
now
$ kubectl --context fleet logs --follow web@member1
# a line of the log that is no explanation
^C
# A pass.
$ clusterpass pass create ann > ann.kubeconfig
$ kubectl --kubeconfig ann.kubeconfig --context member1 delete pod web
Error: refused because it is too long for one line of the terminal, and therefore continues on anoth
er one
`
	if got := texts(t, svg); got != want {
		t.Errorf("the picture has the text\n%s\nwant\n%s", got, want)
	}
	if !bytes.Contains(svg, []byte("prefers-color-scheme:dark")) {
		t.Error("the picture has no colors for dark pages")
	}
}

// A page of GitHub shows the picture without any other file, and the user's browser must not call other hosts.
func TestPictureRefersToNoOtherFile(t *testing.T) {
	committed, err := os.ReadFile("../../../docs/demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := Draw(session)
	if err != nil {
		t.Fatal(err)
	}
	for _, svg := range [][]byte{committed, drawn} {
		for _, no := range []string{"href", "url(", "@import", "<script", "<image"} {
			if bytes.Contains(svg, []byte(no)) {
				t.Errorf("the picture has %q", no)
			}
		}
		if len(svg) > 20_000 {
			t.Errorf("the picture has %d bytes", len(svg))
		}
		texts(t, svg)
	}
}

// A picture of commands that the demo does not run any more would mislead.
func TestPictureNeedsItsCommands(t *testing.T) {
	_, err := Draw(strings.ReplaceAll(session, "fleet exec", "fleet attach"))
	if err == nil || !strings.Contains(err.Error(), `"kubectl --context fleet exec "`) {
		t.Errorf("got error %v, want one that names the command", err)
	}
}

// A log line of kubectl in the README reads as a fault of the gateway.
func TestPictureHasNoLogLines(t *testing.T) {
	const line = "E1123 22:20:14.712634    8740 websocket.go:296] Unknown stream id 1, discarding message"
	_, err := Draw(strings.ReplaceAll(session, "-- date\nnow", "-- date\n"+line+"\nnow"))
	if err == nil || !strings.Contains(err.Error(), line+"; draw it again, with kubectl ") {
		t.Errorf("got error %v, want one with the line and what to do", err)
	}
	committed, err := os.ReadFile("../../../docs/demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(texts(t, committed)) {
		if logLine.MatchString(line) {
			t.Errorf("docs/demo.svg has %s", line)
		}
	}
	const other = "E1 is an element of the output"
	if _, err := Draw(strings.ReplaceAll(session, "-- date\nnow", "-- date\n"+other)); err != nil {
		t.Error(err)
	}
}

// texts returns the lines of text in a picture. It fails the test if the picture is no XML.
func texts(t *testing.T, svg []byte) string {
	t.Helper()
	var lines strings.Builder
	inText := false
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return lines.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inText = token.Name.Local == "text"
		case xml.EndElement:
			inText = false
		case xml.CharData:
			if inText {
				lines.WriteString(string(token) + "\n")
			}
		}
	}
}
