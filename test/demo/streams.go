package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"
)

// patience bounds each command, also on a slow machine.
const patience = 2 * time.Minute

func (d *demo) streams() error {
	say("Watch, while something happens: one pod less.")
	pods := 0
	err := d.live([]string{"--context", "member1", "get", "pods", "-l", "app=web", "--watch"},
		func(line string) (bool, error) {
			if pods++; pods == 4 { // the header and three pods
				return false, d.show("--context", "member1", "scale", "deployment/web", "--replicas=2")
			}
			return strings.Contains(line, "Terminating"), nil
		})
	if err != nil {
		return err
	}

	say("Follow a log.")
	lines := 0
	if err := d.live([]string{"--context", "member2", "logs", "--follow", "deployment/web"}, func(string) (bool, error) {
		lines++
		return lines == 3, nil
	}); err != nil {
		return err
	}

	say("A shell in a pod, with a terminal.")
	if err := d.terminal([]string{"--context", "member1", "exec", "-it", "deployment/web", "--", "env", "PS1=" + prompt,
		"sh"},
		"tty", "echo I am process $$", "exit"); err != nil {
		return err
	}

	say("A pod that prints its port, and that port forwarded to this machine.")
	port := ""
	if err := d.live([]string{"--context", "member2", "logs", "--follow", "pod/site"}, func(line string) (bool, error) {
		port = strings.TrimPrefix(line, portPrefix)
		return true, nil
	}); err != nil {
		return err
	}
	return d.live([]string{"--context", "member2", "port-forward", "pod/site", ":" + port},
		func(line string) (bool, error) {
			addr, _, _ := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
			fmt.Printf("GET http://%s/\n", addr)
			body, err := get(d.ctx, "http://"+addr+"/")
			fmt.Println(body)
			return true, err
		})
}

// live prints kubectl's lines until done returns true or an error. Then it interrupts kubectl.
func (d *demo) live(args []string, done func(line string) (bool, error)) error {
	fmt.Printf("$ kubectl %s\n", quote(args))
	ctx, cancel := context.WithTimeout(d.ctx, patience)
	defer cancel()
	cmd := d.command(ctx, d.pass, args...)
	cmd.Stderr = os.Stdout
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	enough := false
	for in := bufio.NewScanner(out); !enough && err == nil && in.Scan(); {
		fmt.Println(in.Text())
		enough, err = done(in.Text())
	}
	_ = cmd.Process.Signal(syscall.SIGINT)
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with kubectl
	werr := cmd.Wait()
	if !enough && err == nil {
		err = errors.Join(errors.New("it ended before it had shown everything"), werr, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	fmt.Println("^C")
	return nil
}

const prompt = "web> "

// terminal runs kubectl in a terminal. It writes the next line of typed at each prompt.
func (d *demo) terminal(args []string, typed ...string) error {
	fmt.Printf("$ kubectl %s\n", quote(args))
	ctx, cancel := context.WithTimeout(d.ctx, patience)
	defer cancel()
	cmd := d.command(ctx, d.pass, args...)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 120})
	if err != nil {
		return err
	}
	defer func() { _ = tty.Close() }()
	var output strings.Builder
	for b := make([]byte, 1024); err == nil; { // a terminal ends with an error
		var n int
		n, err = tty.Read(b)
		_, _ = os.Stdout.Write(b[:n])
		output.Write(b[:n])
		if strings.HasSuffix(output.String(), prompt) && len(typed) > 0 {
			_, err = io.WriteString(tty, typed[0]+"\n")
			typed = typed[1:]
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), errors.Join(err, ctx.Err()))
	}
	return nil
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(body)), err
}

const portPrefix = "listening on port "

// site serves a page. This program runs it in the pod site.
func site(ctx context.Context) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(portPrefix + strconv.Itoa(ln.Addr().(*net.TCPAddr).Port))
	srv := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, "a page from process %d in pod site\n", os.Getpid())
		})}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (d *demo) command(ctx context.Context, kubeconfig string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.clusters.Kubectl(), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+filepath.Join(d.dir, "cache"))
	return cmd
}
