export function JobsPage() {
  return <h1>Jobs</h1>;
}
