export function JobPage() {
  return <h1>Job</h1>;
}
