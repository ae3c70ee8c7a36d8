/** One change of people, projects or tokens, after which their lists are read again. */
import { useMutation, useQueryClient } from "@tanstack/react-query";

export function useChange<Input, Answer>(run: (input: Input) => Promise<Answer>, done?: (answer: Answer) => void) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: run,
    onSuccess: (answer) => {
      void queries.invalidateQueries({ queryKey: ["people"] });
      done?.(answer);
    },
  });
}
